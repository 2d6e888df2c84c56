// Losses: values that compare predictions with targets, one number an example. Who trains decides how these are
// averaged: Model::fit() divides their sum by the true size of the global batch.
//
//   model.compile({.optimizer = Adam(), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
//
// Semantics and defaults are Keras'. Every function takes (y, prediction[, weight]); dimension 0 is the batch, which
// may be empty. A weight has one number an example, or the shape of the loss before it is averaged over an example's
// values. Shapes that do not fit are InvalidArgument. A target with one more or one fewer dimension of size 1 at the
// end is fitted.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace cohort {

// What distinguishes one loss from another; immutable, thread-safe.
class LossRule {
 public:
  virtual ~LossRule() = default;

  // Returns the name in logs and configurations.
  virtual const std::string& name() const = 0;
  // Unreduced: [batch] or [batch, ...].
  virtual torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const = 0;
  // The sum over the batch of each example's mean value, in as few operations as there are.
  virtual torch::Tensor sum(const torch::Tensor& y, const torch::Tensor& prediction) const;
};

// A value, cheap to copy, thread-safe. Made by the functions below.
class Loss {
 public:
  // A function of the user's.
  using Function = std::function<torch::Tensor(const torch::Tensor& y, const torch::Tensor& prediction)>;

  explicit Loss(std::shared_ptr<const LossRule> rule) : rule_(std::move(rule)) {}
  // A function of the user's: it returns [batch] or [batch, ...], not a scalar.
  Loss(std::string name, Function values);
  // "sparse_categorical_crossentropy", "mse", ...: the function of that name below without options, so of
  // probabilities. Unknown: NotFound lists them.
  Loss(const char* name);  // NOLINT(google-explicit-constructor)

  // Returns the name in logs and configurations.
  const std::string& name() const { return rule_->name(); }

  // [batch]: each example's mean value, times its weight.
  torch::Tensor per_example(const torch::Tensor& y, const torch::Tensor& prediction,
                            const torch::Tensor& weight = {}) const;
  // The sum of per_example(), a scalar.
  torch::Tensor sum(const torch::Tensor& y, const torch::Tensor& prediction, const torch::Tensor& weight = {}) const;
  // sum() / batch (not divided by the sum of the weights); 0 for an empty batch.
  torch::Tensor operator()(const torch::Tensor& y, const torch::Tensor& prediction,
                           const torch::Tensor& weight = {}) const;

 private:
  std::shared_ptr<const LossRule> rule_;
};

struct SparseCategoricalCrossentropyOptions {
  bool from_logits = false;  // predictions are logits (better: stable) instead of probabilities
  int64_t axis = -1;         // of the classes
  std::string name = "sparse_categorical_crossentropy";  // in logs
};
// y: integers [batch, ...] without the class axis; prediction: [batch, ..., classes]. A label outside the classes is
// InvalidArgument on a CPU (on a GPU CUDA's device-side assertion).
Loss SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& options = {});

struct CategoricalCrossentropyOptions {
  bool from_logits = false;                       // predictions are logits instead of probabilities
  double label_smoothing = 0.0;                   // y becomes y * (1 - s) + s / classes; in [0, 1]
  int64_t axis = -1;                              // dimension of the classes
  std::string name = "categorical_crossentropy";  // in logs
};
// y: probabilities (one-hot or soft) of the prediction's shape.
Loss CategoricalCrossentropy(const CategoricalCrossentropyOptions& options = {});

struct BinaryCrossentropyOptions {
  bool from_logits = false;                  // predictions are logits instead of probabilities
  double label_smoothing = 0.0;              // y becomes y * (1 - s) + s / 2; in [0, 1]
  std::string name = "binary_crossentropy";  // in logs
};
// y: 0 or 1, or between, of the prediction's shape, any dtype.
Loss BinaryCrossentropy(const BinaryCrossentropyOptions& options = {});

struct MeanSquaredErrorOptions {
  std::string name = "mean_squared_error";  // in logs
};
// The square of the difference.
Loss MeanSquaredError(const MeanSquaredErrorOptions& options = {});

struct MeanAbsoluteErrorOptions {
  std::string name = "mean_absolute_error";  // in logs
};
// The absolute value of the difference.
Loss MeanAbsoluteError(const MeanAbsoluteErrorOptions& options = {});

struct HuberOptions {
  double delta = 1.0;               // quadratic up to here, linear beyond
  std::string name = "huber_loss";  // in logs
};
// Half the square of small differences, linear for larger ones (Huber, 1964).
Loss Huber(const HuberOptions& options = {});

}  // namespace cohort
