// Update rules: what becomes of a parameter by its gradient (Adam, SGD, ...), as a value, and mixed precision.
// cohort/more_update_rules.h has more rules.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/schedule.h"

namespace cohort {

class UpdateRule;

// The policies of Keras. In the mixed ones the forward pass runs under LibTorch's autocast: convolutions and matrix
// products are computed in the half type, sums, losses and the like in float32; the model's output is float32.
enum class PrecisionPolicy {
  kFloat32,
  kMixedFloat16,   // float16 on GPUs and on XLA's devices, with loss scaling
  kMixedBFloat16,  // bfloat16 there, and on CPUs, where it pays with AVX512_BF16 or AMX
};

// "float32", "mixed_float16", "mixed_bfloat16", and Model Garden's "float16", "bfloat16" and "". InvalidArgument:
// others.
PrecisionPolicy parse_precision(std::string_view name);

// The loss is multiplied before backward, and the gradients divided afterwards, so that small ones do not vanish in
// float16. A step whose gradients, summed over all replicas, are not finite is left out on all of them. Source: P.
// Micikevicius et al., "Mixed Precision Training" (2018); defaults are TensorFlow's LossScaleOptimizer's.
struct LossScale {
  double initial_scale = 32768.0;  // a positive number
  // Halved after a step that was left out, and doubled after so many in a row that were not. With false,
  // it stays.
  bool dynamic = true;
  int64_t growth_steps = 2000;  // steps in a row after which the scale is doubled
};

// The form of a rule that is meant where libraries differ. docs/optimizers.md has the differences.
enum class Formulation {
  kKeras,   // Keras 3: keras.optimizers
  kLegacy,  // tf.keras.optimizers.legacy and TensorFlow's addons, which Model Garden's configurations name
  kTorch,   // LibTorch's torch::optim; of rules that it lacks, the papers'. weight_decay is L2: g += weight_decay * p
};

// Options for what is done to the gradient between the exchange and the update. All of it sees the gradient of the
// whole global batch. At most one of clipnorm, global_clipnorm and clipvalue may be set (InvalidArgument).
struct GradientOptions {
  // Scales the gradient of each parameter so that its L2 norm is at most this; 0: off.
  double clipnorm = 0.0;
  // Scales all gradients together so that their joint L2 norm is at most this; 0: off.
  double global_clipnorm = 0.0;
  // Clips every element to [-clipvalue, clipvalue]; 0: off.
  double clipvalue = 0.0;
  // Gradients are averaged over so many minimize() calls before one exchange and update. As in Keras, a schedule of the
  // rate and use_ema count the calls, and the rule counts the updates.
  int64_t gradient_accumulation_steps = 1;
  // minimize() multiplies the loss by it and the update divides by it; 0: off. As in Keras, gradients() returns the
  // gradients of the multiplied loss, and apply_gradients() expects such.
  double loss_scale_factor = 0.0;
  // Scales the loss for gradients that come through float16. Parameter servers refuse it (Unimplemented).
  std::optional<LossScale> loss_scale = std::nullopt;
  // Adds l2 * p to the gradient after clipping, as the gradient of a loss with l2 / 2 times the squares of the weights;
  // not where exclude_from_weight_decay says no.
  double l2 = 0.0;
};

// An exponential average of every parameter, kept beside it: average = momentum * average + (1 - momentum) * p after
// each update; after the first one the parameter itself. MirroredOptimizer::finalize_variable_values() puts the
// averages into the parameters, as Model::fit does at its end.
struct EmaOptions {
  bool use_ema = false;                 // averages are kept
  double ema_momentum = 0.99;           // share of the average before
  int64_t ema_overwrite_frequency = 0;  // the averages replace the parameters every so many updates; 0: never
};

class Optimizer;

// Returns the same optimizer with its loss scaled, as Keras' LossScaleOptimizer.
Optimizer LossScaleOptimizer(const Optimizer& inner, const LossScale& options = {});

// An update rule with its options; immutable, cheap to copy, thread-safe. Made by the functions below.
class Optimizer {
 public:
  // Stands for the rule with what surrounds it. Layer adaptation (the trust ratio of LAMB and LARS) leaves out the
  // parameters that the last list names.
  Optimizer(std::shared_ptr<const UpdateRule> rule, Schedule learning_rate, GradientOptions gradient,
            std::vector<std::string> exclude_from_weight_decay = {},
            std::vector<std::string> exclude_from_layer_adaptation = {}, bool master_weights = true);
  // "adam", "sgd", ...: the function of that name, here or in more_update_rules.h, without options. Unknown: NotFound
  // lists them.
  Optimizer(const char* name);  // NOLINT(google-explicit-constructor)

  // Returns the name of the rule, such as "adam".
  const std::string& name() const;
  // Returns the rule; the library uses this.
  const UpdateRule& rule() const { return *rule_; }
  // Returns the learning rate.
  const Schedule& learning_rate() const { return learning_rate_; }
  // Returns what is done to the gradient.
  const GradientOptions& gradient() const { return gradient_; }
  // Returns a copy with other options for the gradient.
  Optimizer with_gradient(const GradientOptions& gradient) const;
  // Returns whether parameters of float16 and bfloat16 have master weights, as in NVIDIA's Apex (O2), DeepSpeed and
  // Megatron: a float32 copy each, the slot "master", which the rule updates; the parameter is its rounding, so that
  // small updates add up. 4 bytes an element. An element that something else has written, and that is no rounding of
  // its master any more, becomes its master in the next update. False: the rule updates the parameter, widened to
  // float32 and rounded again by each update. Parameters of other dtypes have none.
  bool master_weights() const { return master_weights_; }

  // Returns whether weight decay applies to this parameter: no pattern of exclude_from_weight_decay is part of its
  // name. The pattern "1d" stands for every parameter of rank 0 or 1: biases and the scales and shifts of norms. A tied
  // parameter, which has several names, is excluded by any of them. An empty pattern is an InvalidArgument.
  bool decays(const std::string& name, int64_t rank) const;
  // Returns whether layer adaptation applies to this parameter, by exclude_from_layer_adaptation in the same way. In
  // kLegacy an empty list stands for exclude_from_weight_decay's; in kTorch that one's are always among them.
  bool adapts(const std::string& name, int64_t rank) const;

 private:
  std::shared_ptr<const UpdateRule> rule_;
  Schedule learning_rate_;
  GradientOptions gradient_;
  std::vector<std::string> exclude_from_weight_decay_;
  std::vector<std::string> exclude_from_layer_adaptation_;
  bool master_weights_;
};

// The formulas below are those of Formulation::kKeras, and so are the defaults; docs/optimizers.md has the other forms.
// All arithmetic is in the parameter's dtype; float16 and bfloat16 parameters are updated in float32, with float32
// slots and master weights. `t` counts updates from 1.
// p -= lr * g; with momentum v = momentum * v + lr * g, p -= v: the rate is part of the velocity.
struct SgdOptions {
  Schedule learning_rate = 0.01;  // lr in the formulas: a number or a schedule
  double momentum = 0.0;          // share of the velocity before
  bool nesterov = false;          // p -= momentum * v + lr * g; needs momentum, and no dampening
  double dampening = 0.0;  // kTorch only: v = momentum * v + (1 - dampening) * g after the first update, at which v = g
  double weight_decay = 0.0;                                // decoupled: p -= lr * weight_decay * p before the update
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // the changes to the gradient before the update
  EmaOptions ema = {};                                      // averages of the parameters
  Formulation formulation = Formulation::kKeras;            // the form of the rule
  bool master_weights = true;                               // see Optimizer::master_weights()
};
// m = beta_1 * m + (1 - beta_1) * g; v = beta_2 * v + (1 - beta_2) * g^2;
// p -= lr * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon) (Kingma and Ba, "Adam", 2015).
struct AdamOptions {
  Schedule learning_rate = 1e-3;  // lr in the formulas: a number or a schedule
  double beta_1 = 0.9;            // decay of the mean of the gradients
  double beta_2 = 0.999;          // decay of the mean of their squares
  double epsilon = 1e-7;          // kTorch: beside sqrt(v / (1 - beta_2^t))
  bool amsgrad = false;           // the largest v so far in place of v (Reddi, Kale and Kumar, 2018)
  double weight_decay = 0.0;      // decoupled: p -= lr * weight_decay * p before the update
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // the changes to the gradient before the update
  EmaOptions ema = {};                                      // averages of the parameters
  Formulation formulation = Formulation::kKeras;            // the form of the rule
  bool master_weights = true;                               // see Optimizer::master_weights()
};
// Adam with a decay by default (Loshchilov and Hutter, 2019), which is decoupled in every formulation.
struct AdamWOptions {
  Schedule learning_rate = 1e-3;                            // lr in the formulas: a number or a schedule
  double beta_1 = 0.9;                                      // decay of the mean of the gradients
  double beta_2 = 0.999;                                    // decay of the mean of their squares
  double epsilon = 1e-7;                                    // as in AdamOptions
  bool amsgrad = false;                                     // the largest v so far in place of v
  double weight_decay = 4e-3;                               // decoupled: p -= lr * weight_decay * p before the update
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // the changes to the gradient before the update
  EmaOptions ema = {};                                      // averages of the parameters
  Formulation formulation = Formulation::kKeras;            // the form of the rule
  bool master_weights = true;                               // see Optimizer::master_weights()
};
// v = rho * v + (1 - rho) * g^2; p -= lr * g / sqrt(v + epsilon) (Tieleman and Hinton, 2012).
struct RmspropOptions {
  Schedule learning_rate = 1e-3;  // lr in the formulas: a number or a schedule
  double rho = 0.9;               // PyTorch's alpha
  double momentum = 0.0;          // b = momentum * b + lr * g / sqrt(v + epsilon); p -= b
  double epsilon = 1e-7;          // kTorch, and kLegacy without momentum: beside the root
  bool centered = false;          // the variance of g in place of v (Graves, 2013); never below 0
  double weight_decay = 0.0;      // decoupled: p -= lr * weight_decay * p before the update
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // the changes to the gradient before the update
  EmaOptions ema = {};                                      // averages of the parameters
  Formulation formulation = Formulation::kKeras;            // the form of the rule
  bool master_weights = true;                               // see Optimizer::master_weights()
};
// s += g^2; p -= lr * g / sqrt(s + epsilon) (Duchi, Hazan and Singer, 2011).
struct AdagradOptions {
  Schedule learning_rate = 1e-3;                            // lr in the formulas: a number or a schedule
  double initial_accumulator_value = 0.1;                   // the squares start at this
  double epsilon = 1e-7;                                    // kTorch and kLegacy: beside the root
  double lr_decay = 0.0;                                    // kTorch only: lr / (1 + (t - 1) * lr_decay)
  double weight_decay = 0.0;                                // decoupled: p -= lr * weight_decay * p before the update
  std::vector<std::string> exclude_from_weight_decay = {};  // see Optimizer::decays()
  GradientOptions gradient = {};                            // the changes to the gradient before the update
  EmaOptions ema = {};                                      // averages of the parameters
  Formulation formulation = Formulation::kKeras;            // the form of the rule
  bool master_weights = true;                               // see Optimizer::master_weights()
};

// Stochastic gradient descent, with momentum. InvalidArgument, here and below: numbers out of range (a negative rate, a
// beta of 1 or more, ...), and what another formulation has alone. A rate that a schedule gives is not checked.
Optimizer SGD(const SgdOptions& options = {});
// Adam; see AdamOptions.
Optimizer Adam(const AdamOptions& options = {});
// Adam with decoupled decay.
Optimizer AdamW(const AdamWOptions& options = {});
// A step divided by the root of the mean of the squares; see RmspropOptions.
Optimizer RMSprop(const RmspropOptions& options = {});
// A step divided by the root of the sum of the squares; see AdagradOptions.
Optimizer Adagrad(const AdagradOptions& options = {});

namespace detail {

struct PyTorchNames {
  Schedule lr;
  double momentum, rho, alpha;
  std::vector<double> betas;
  double eps, lr_decay, weight_decay, dampening;
  bool amsgrad, nesterov, centered;
};

}  // namespace detail

// Options by PyTorch's names are an error, in which the compiler shows these lines.
template <int = 0>
Optimizer SGD(const detail::PyTorchNames& lr_is_learning_rate_eps_is_epsilon_betas_are_beta_1_and_beta_2) = delete;
template <int = 0>
Optimizer Adam(const detail::PyTorchNames& lr_is_learning_rate_eps_is_epsilon_betas_are_beta_1_and_beta_2) = delete;
template <int = 0>
Optimizer AdamW(const detail::PyTorchNames& lr_is_learning_rate_eps_is_epsilon_betas_are_beta_1_and_beta_2) = delete;
template <int = 0>
Optimizer RMSprop(const detail::PyTorchNames& lr_is_learning_rate_eps_is_epsilon_betas_are_beta_1_and_beta_2) = delete;
template <int = 0>
Optimizer Adagrad(const detail::PyTorchNames& lr_is_learning_rate_eps_is_epsilon_betas_are_beta_1_and_beta_2) = delete;

}  // namespace cohort
