// Loss: values that compare predictions with targets, and how they become one number. The losses that there are:
// cohort/train/losses.h.
//
//   const Loss loss = SparseCategoricalCrossentropy({.from_logits = true});
//   loss(y, prediction)                                            // the loss of a whole batch
//   loss(share.y, prediction)                                      // in a replica: its part of Keras' mean
//   loss.share(replica, share.y, prediction, share.weight).value   // its exact share of the global batch's loss
//
// Semantics and defaults are Keras 3's. Every function takes (y, prediction[, weight[, mask]]); dimension 0 is the
// batch, which may be empty. A weight has one number an example, or the shape of the loss before it is averaged over an
// example's values; a mask has one boolean for each of these, and what it leaves out neither adds to the sum nor counts
// in the divisor. Shapes that do not fit are InvalidArgument. A target with one more or one fewer dimension of size 1
// at the end is fitted.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cohort/train/given_options.h"

namespace cohort {

class Replica;

// The way in which the values of a batch become one number, as Keras' reductions have it.
enum class LossReduction {
  kSumOverBatchSize,      // their sum divided by their number; "mean" is another name for it
  kSum,                   // their sum
  kMeanWithSampleWeight,  // their weighted sum divided by the sum of the weights
  kNone,                  // none: the values themselves; not for Model::compile()
};

// Tells over what the loss of a step is averaged where several replicas share its batch.
enum class LossAverage {
  kGlobalBatch,  // over all examples, each of which counts as much as any other
  kReplicas,     // over the means of the replicas, as in Keras: examples of a smaller share count more
};

// A replica's share of the loss of a global batch.
struct LossShare {
  torch::Tensor value;  // added up over the replicas it is the loss, whose gradients are to be taken
  torch::Tensor total;  // the value times the examples of the global batch, for a mean over several batches
};

// The part of a loss that distinguishes it from others; immutable, thread-safe.
class LossRule : public GivenOptions {
 public:
  virtual ~LossRule() = default;

  // Returns the name in logs and configurations.
  virtual const std::string& name() const = 0;
  // Returns the values before they are reduced: [batch] or [batch, ...].
  virtual torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const = 0;
  // Returns the sum over the batch of each example's mean value, in as few operations as there are.
  virtual torch::Tensor sum(const torch::Tensor& y, const torch::Tensor& prediction) const;
  // Returns sum() divided by a number as the value, and as it is as the total.
  virtual LossShare divided_sum(const torch::Tensor& y, const torch::Tensor& prediction, double divisor) const;
  // Returns whether the loss is the mean of values() over their last dimension, which matters where it is not averaged
  // over everything: [batch, time, size] then has [batch, time] values.
  virtual bool averages_last() const { return false; }
  // Returns what the values are multiplied with in the metric of the same name: -1 for the cosine similarity, which as
  // a loss is negative.
  virtual double metric_sign() const { return 1.0; }
};

// The batch of which a loss sees a part: how the replicas that share a batch add up and join what each has. All of them
// call the same functions in the same order. Gradients flow through.
class WholeBatch {
 public:
  virtual ~WholeBatch() = default;

  // Returns the sum of all parts' tensors, which have the same shape.
  virtual torch::Tensor sum(const torch::Tensor& mine) const = 0;
  // Returns the number of this part among the parts, from 0.
  virtual int64_t part() const = 0;
  // Returns the rows of all parts, one after the other.
  virtual torch::Tensor rows(const torch::Tensor& mine) const = 0;
};

// A loss some of whose values do not count, or whose values depend on more than their own example.
class BatchLossRule : public LossRule {
 public:
  // The sums of a part of a batch.
  struct Values {
    torch::Tensor each;     // [batch, ...], or of any shape where the values are the batch's as a whole
    torch::Tensor counted;  // booleans, of the same shape; undefined: all count
    bool of_batch = false;  // the values are the batch's as a whole, the same on every part
  };

  // Returns the values of this part.
  virtual Values values_within(const WholeBatch& batch, const torch::Tensor& y,
                               const torch::Tensor& prediction) const = 0;
  // Returns whether values_within() needs the other parts of the batch.
  virtual bool needs_whole_batch() const = 0;

  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const final;
};

// A value, cheap to copy, thread-safe. Made by the functions of losses.h.
class Loss {
 public:
  // A function of the user's.
  using Function = std::function<torch::Tensor(const torch::Tensor& y, const torch::Tensor& prediction)>;

  explicit Loss(std::shared_ptr<const LossRule> rule, LossReduction reduction = LossReduction::kSumOverBatchSize);
  // A function of the user's: it returns [batch] or [batch, ...], not a scalar.
  Loss(std::string name, Function values, LossReduction reduction = LossReduction::kSumOverBatchSize);
  // "sparse_categorical_crossentropy", "mse", ...: the function of that name in losses.h without options, so of
  // probabilities. Unknown: NotFound lists them.
  Loss(const char* name);  // NOLINT(google-explicit-constructor)

  // Returns the name in logs and configurations.
  const std::string& name() const { return rule_->name(); }
  // Returns how the values become one number.
  LossReduction reduction() const { return reduction_; }
  // Returns what distinguishes the loss from others.
  const LossRule& rule() const { return *rule_; }

  // Returns the loss of a batch, by its reduction: a scalar, or with kNone the weighted values. 0 for an empty batch.
  // In a replica (Strategy::run()) a mean is divided by the number of replicas, as in Keras, so that the replicas' sum
  // is the loss of the global batch if their shares have the same size. share() and Replica::global_mean() are exact
  // for all shares. Unimplemented: a mean in a call for a microbatch of a pipeline.
  torch::Tensor operator()(const torch::Tensor& y, const torch::Tensor& prediction, const torch::Tensor& weight = {},
                           const torch::Tensor& mask = {}) const;

  // Returns this replica's share of the loss of the global batch that run() was given, by its reduction: exact for
  // shares that are uneven or empty, and for weights and masks that differ between them. Local for a mean over the
  // batch without a mask; otherwise, or where run() was given no batch, a collective of all replicas, those with empty
  // shares included. InvalidArgument: kNone. Unimplemented: workers that do shares of a step for parameter servers
  // cannot see the others' examples, which a mask and some losses need.
  LossShare share(Replica& replica, const torch::Tensor& y, const torch::Tensor& prediction,
                  const torch::Tensor& weight = {}, const torch::Tensor& mask = {}) const;

  // Returns the replica's part with LossAverage::kReplicas, as operator() does in a replica: the loss of the replica's
  // own examples, divided by the number of replicas unless it is a sum. Local.
  LossShare mean_share(const Replica& replica, const torch::Tensor& y, const torch::Tensor& prediction,
                       const torch::Tensor& weight = {}, const torch::Tensor& mask = {}) const;

  // Returns [batch]: each example's mean value, times its weight, whatever the reduction is.
  torch::Tensor per_example(const torch::Tensor& y, const torch::Tensor& prediction, const torch::Tensor& weight = {},
                            const torch::Tensor& mask = {}) const;
  // Returns the sum of per_example(), a scalar.
  torch::Tensor sum(const torch::Tensor& y, const torch::Tensor& prediction, const torch::Tensor& weight = {}) const;

 private:
  std::shared_ptr<const LossRule> rule_;
  LossReduction reduction_ = LossReduction::kSumOverBatchSize;
};

// Returns this replica's share of the mean of [batch] losses over the global batch: Replica::global_mean()
// (tf.nn.compute_average_loss, which has to be told the size of the batch). FailedPrecondition: called outside of
// run().
torch::Tensor compute_average_loss(const torch::Tensor& per_example_loss, const torch::Tensor& weight = {});
// Divides a loss that every replica has whole, such as those of Model::losses(), by the number of replicas, so that the
// replicas' sum has it once (tf.nn.scale_regularization_loss). FailedPrecondition: called outside of run().
torch::Tensor scale_regularization_loss(const torch::Tensor& loss);

}  // namespace cohort
