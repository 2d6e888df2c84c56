// Optimizers: the rule (Adam, SGD, ...) as a value, and MirroredOptimizer, which applies it under a strategy.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/mirrored.h"
#include "cohort/precision.h"
#include "cohort/replica.h"
#include "cohort/schedule.h"

namespace cohort {

class UpdateRule;
class Step;

// What is done to the gradient between the exchange and the update. All of it sees the gradient of the whole global
// batch.
struct GradientOptions {
  // Scales all gradients together so that their joint L2 norm is at most this; 0: off.
  double global_clipnorm = 0.0;
  // Clips every element to [-clipvalue, clipvalue]; 0: off. Not together with global_clipnorm (InvalidArgument).
  double clipvalue = 0.0;
  // Gradients are averaged over so many minimize() calls before one exchange and update.
  int64_t accumulate_steps = 1;
  // For gradients that come through float16; unset: none. Not under parameter servers (Unimplemented).
  std::optional<LossScale> loss_scale = std::nullopt;
};

class Optimizer;

// The same optimizer with its loss scaled, as Keras' LossScaleOptimizer.
Optimizer LossScaleOptimizer(const Optimizer& inner, const LossScale& options = {});

// An update rule with its options; immutable, cheap to copy, thread-safe. Made by the functions below.
class Optimizer {
 public:
  Optimizer(std::shared_ptr<const UpdateRule> rule, Schedule learning_rate, GradientOptions gradient,
            std::vector<std::string> exclude_from_weight_decay = {});
  // "adam", "sgd", ...: the function of that name below without options. Unknown: NotFound lists them.
  Optimizer(const char* name);  // NOLINT(google-explicit-constructor)

  // Returns the name of the rule, such as "adam".
  const std::string& name() const;
  // For the library: the rule.
  const UpdateRule& rule() const { return *rule_; }
  // For the library: the same, shared.
  const std::shared_ptr<const UpdateRule>& shared_rule() const { return rule_; }
  // Returns the learning rate.
  const Schedule& learning_rate() const { return learning_rate_; }
  // Returns what is done to the gradient.
  const GradientOptions& gradient() const { return gradient_; }
  // A copy with other options for the gradient.
  Optimizer with_gradient(const GradientOptions& gradient) const;

  // Whether weight decay (and, in LAMB and LARS, the trust ratio) applies to this parameter: no pattern of
  // exclude_from_weight_decay is part of its name. The pattern "1d" stands for every parameter of rank 0 or 1: biases
  // and the scales and shifts of norms. Of a tied parameter, which has several names, any of them may match. An empty
  // pattern is an InvalidArgument.
  bool decays(const std::string& name, int64_t rank) const;

 private:
  std::shared_ptr<const UpdateRule> rule_;
  Schedule learning_rate_;
  GradientOptions gradient_;
  std::vector<std::string> exclude_from_weight_decay_;
};

// The formulas are PyTorch's (torch/optim), where it has the optimizer. All arithmetic is in the parameter's dtype;
// float16 and bfloat16 parameters are updated in float32, with float32 slots. `t` counts updates from 1.
struct SgdOptions {
  Schedule learning_rate = 0.01;  // lr in the formulas: a number or a schedule
  double momentum = 0.0;          // v = momentum * v + g; p -= lr * v (PyTorch's form)
  bool nesterov = false;          // p -= lr * (g + momentum * v); needs momentum, and no dampening
  double dampening = 0.0;         // v = momentum * v + (1 - dampening) * g after the first update, at which v = g
  double weight_decay = 0.0;      // L2: g += weight_decay * p
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // what is done to the gradient first
};
// m = beta_1 * m + (1 - beta_1) * g; v = beta_2 * v + (1 - beta_2) * g^2;
// p -= lr * m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon) (Kingma and Ba, "Adam", 2015).
struct AdamOptions {
  Schedule learning_rate = 1e-3;  // lr in the formulas: a number or a schedule
  double beta_1 = 0.9;            // decay of the mean of the gradients
  double beta_2 = 0.999;          // decay of the mean of their squares
  double epsilon = 1e-8;          // PyTorch's; Keras' is 1e-7
  bool amsgrad = false;           // the largest v so far in place of v (Reddi, Kale and Kumar, 2018)
  double weight_decay = 0.0;      // L2: g += weight_decay * p
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // what is done to the gradient first
};
struct AdamWOptions {
  Schedule learning_rate = 1e-3;  // lr in the formulas: a number or a schedule
  double beta_1 = 0.9;            // decay of the mean of the gradients
  double beta_2 = 0.999;          // decay of the mean of their squares
  double epsilon = 1e-8;          // added to the root of the squares
  bool amsgrad = false;           // the largest v so far in place of v
  double weight_decay = 1e-2;     // decoupled: p -= lr * weight_decay * p (Loshchilov and Hutter, 2019)
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // what is done to the gradient first
};
// v = rho * v + (1 - rho) * g^2; p -= lr * g / (sqrt(v) + epsilon) (Tieleman and Hinton, 2012).
struct RmspropOptions {
  Schedule learning_rate = 1e-2;  // lr in the formulas: a number or a schedule
  double rho = 0.99;              // PyTorch's alpha
  double momentum = 0.0;          // b = momentum * b + g / (sqrt(v) + epsilon); p -= lr * b
  double epsilon = 1e-8;          // added to the root of the squares
  bool centered = false;          // the variance of g in place of v (Graves, 2013); never below 0, unlike PyTorch's
  double weight_decay = 0.0;      // L2
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // what is done to the gradient first
};
// s += g^2; p -= lr * g / (sqrt(s) + epsilon) (Duchi, Hazan and Singer, 2011).
struct AdagradOptions {
  Schedule learning_rate = 1e-2;                            // lr in the formulas: a number or a schedule
  double initial_accumulator_value = 0.0;                   // the squares start at this
  double epsilon = 1e-10;                                   // added to the root of the squares
  double lr_decay = 0.0;                                    // lr / (1 + (t - 1) * lr_decay)
  double weight_decay = 0.0;                                // L2
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // what is done to the gradient first
};
// d = Adam's step without the rate + weight_decay * p; p -= lr * |p| / |d| * d, with the norms of the whole parameter,
// and without their quotient where one is zero (You et al., "Large Batch Optimization for Deep Learning", 2020,
// algorithm 2).
struct LambOptions {
  Schedule learning_rate = 1e-3;  // lr in the formulas: a number or a schedule
  double beta_1 = 0.9;            // decay of the mean of the gradients
  double beta_2 = 0.999;          // decay of the mean of their squares
  double epsilon = 1e-6;          // added to the root of the squares
  double weight_decay = 0.0;      // share of the parameter that is added to the step
  // These parameters also get no trust ratio, as in the paper's code.
  std::vector<std::string> exclude_from_weight_decay = {};
  GradientOptions gradient = {};  // what is done to the gradient first
};
// r = trust_coefficient * |p| / (|g| + weight_decay * |p| + epsilon), 1 where a norm is zero; v = momentum * v +
// lr * r * (g + weight_decay * p); p -= v (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks",
// 2017, algorithm 1).
struct LarsOptions {
  Schedule learning_rate = 0.1;     // lr in the formulas: a number or a schedule
  double momentum = 0.9;            // see above
  bool nesterov = false;            // p -= momentum * v + lr * r * (g + weight_decay * p); needs momentum
  double trust_coefficient = 1e-3;  // the norm of a step before the rate, as a part of the parameter's
  double epsilon = 1e-8;            // added to the norms
  double weight_decay = 0.0;        // share of the parameter that is added to the step
  // These parameters also get no trust ratio, as in the paper's code.
  std::vector<std::string> exclude_from_weight_decay = {};
  GradientOptions gradient = {};  // what is done to the gradient first
};

// Stochastic gradient descent, with momentum. InvalidArgument, here and below: numbers out of range (a negative rate, a
// beta of 1 or more, ...). A rate that a schedule gives is not checked.
Optimizer SGD(const SgdOptions& options = {});
// Adam, with L2 decay as PyTorch's; see AdamOptions.
Optimizer Adam(const AdamOptions& options = {});
// Adam with decoupled decay.
Optimizer AdamW(const AdamWOptions& options = {});
// A step divided by the root of the mean of the squares; see RmspropOptions.
Optimizer RMSprop(const RmspropOptions& options = {});
// A step divided by the root of the sum of the squares; see AdagradOptions.
Optimizer Adagrad(const AdagradOptions& options = {});
// Adam's step, scaled by the norm of each parameter: for large batches.
Optimizer LAMB(const LambOptions& options = {});
// Momentum, scaled by the norms of each parameter and its gradient: for large batches.
Optimizer LARS(const LarsOptions& options = {});

// One replica's end of a MirroredOptimizer; made by operator[], used inside run(). All methods are collectives: every
// replica makes the same calls in the same order.
class ReplicaOptimizer {
 public:
  // For the library: MirroredOptimizer::operator[] makes these.
  ReplicaOptimizer(Step& step, Replica& replica) : step_(step), replica_(replica) {}

  // Backward from a scalar loss, sum of the gradients over the replicas, update of all copies. The loss is this
  // replica's share of the global mean (Replica::global_mean). A parameter that the loss does not reach gets a zero
  // gradient.
  void minimize(const torch::Tensor& loss);

  // The same from gradients that the caller computed, in the order of MirroredOptimizer::parameter_names(); an
  // undefined tensor is a zero gradient. With `reduced` the caller has already summed them over the replicas.
  void apply_gradients(std::vector<torch::Tensor> gradients, bool reduced = false);

  // Backward only: this replica's gradients, not summed.
  std::vector<torch::Tensor> gradients(const torch::Tensor& loss);

 private:
  Step& step_;
  Replica& replica_;
};

// When the gradients of a step went to the other workers, message by message; in seconds since its backward began.
struct ExchangeTimeline {
  // One message.
  struct Message {
    int64_t bytes = 0;   // its size
    double ready = 0.0;  // all replicas of this worker had brought their gradients
    double begin = 0.0;  // it was sent
    double end = 0.0;    // the sum over all workers was there
  };
  double backward = 0.0;          // until its end
  std::vector<Message> messages;  // in the order in which they were sent

  // The share of the time of communication during which backward ran: 0 to 1, 0 without messages.
  double hidden() const;
};

// A handle: copies are the same optimizer. Holds the slots, in flat memory, and the step count. Made by
// Strategy::optimizer(); it takes the module's parameters that require gradients at that time and lays them out flat.
class MirroredOptimizer {
 public:
  MirroredOptimizer() = default;
  explicit MirroredOptimizer(std::shared_ptr<Step> step) : step_(std::move(step)) {}

  // Returns the replica's end, for use inside run().
  ReplicaOptimizer operator[](Replica& replica) const { return {*step_, replica}; }
  // Returns whether the handle refers to an optimizer.
  bool defined() const { return step_ != nullptr; }

  // Updates made so far.
  int64_t iterations() const;
  // The rate of the next update.
  double learning_rate() const;
  // Replaces the rate or the schedule (learning-rate callbacks do). Cross-replica context only. A rate is part of
  // state(); a schedule is not, the program sets it again.
  void set_learning_rate(Schedule schedule) const;
  // Returns the rule that it was made with.
  const Optimizer& rule() const;
  // Returns the names of the parameters that it updates, in the order of the gradients.
  const std::vector<std::string>& parameter_names() const;
  // What the loss of the next step is multiplied with; 1 without loss scaling.
  double loss_scale() const;
  // Returns the timeline of the last step; without messages if they do not leave during backward (docs/multi-worker.md
  // says when they do).
  ExchangeTimeline exchange_timeline() const;

  // Everything that a restart needs, by name ("iterations", "<parameter>/<slot>", "learning_rate" where one was set):
  // independent of strategy and replicas.
  std::vector<std::pair<std::string, torch::Tensor>> state() const;
  // NotFound or InvalidArgument name the entry that is missing or does not fit.
  void load_state(const std::vector<std::pair<std::string, torch::Tensor>>& state) const;

  // What accumulate_steps has added up so far in this process's replicas, as CPU tensors; none where it is 1. With it a
  // restart between two updates goes on bit for bit under the same strategy; load_state() alone drops it.
  std::vector<torch::Tensor> accumulated() const;
  // InvalidArgument: of other parameters or another number of replicas.
  void load_accumulated(const std::vector<torch::Tensor>& sums) const;

 private:
  std::shared_ptr<Step> step_;
};

}  // namespace cohort
