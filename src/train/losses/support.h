// The code that losses and metrics have in common: fitting the shapes of targets, predictions, weights and masks.
#pragma once

#include <torch/types.h>

#include <string>

#include "cohort/train/loss.h"

namespace cohort {

// Keras' epsilon: probabilities are kept this far from 0 and 1, and divisors from 0.
constexpr double kKerasEpsilon = 1e-7;

// A loss or a metric to which a prediction may come as a divided tensor, of which each replica has some classes
// (parts_along()).
class TakesParts {
 public:
  virtual ~TakesParts() = default;
  virtual bool takes_parts() const { return true; }
};

// Fails where the target or the prediction is missing, or where they are not of the same number of examples.
void require_targets(const std::string& name, const torch::Tensor& y, const torch::Tensor& prediction);

// Returns y with the prediction's shape and dtype; a dimension of size 1 at the end may be missing or too much.
torch::Tensor fit_target(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction);

// A target and a prediction of one shape and dtype.
struct Fitted {
  torch::Tensor target;
  torch::Tensor prediction;
};

// Returns both with one shape, for losses of single values. As in TensorFlow, dimensions of size 1 beside others are
// repeated, and one of [batch] beside one of [batch, n] is taken as [batch, 1]; a warning says so once.
Fitted fit_values(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction);

// Returns class indices as int64, of the prediction's shape without `axis`.
torch::Tensor fit_labels(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction,
                         int64_t axis);

// Fails where the prediction has no dimension `axis` for classes, or nothing but it.
void require_classes(const std::string& speaker, const torch::Tensor& prediction, int64_t axis);

// Returns the weight, ready to be multiplied with values of [batch, ...]: dimensions of size 1 are appended.
torch::Tensor fit_weight(const std::string& speaker, const torch::Tensor& weight, const torch::Tensor& values);

// Returns the weights of what the mask leaves: the mask's booleans where there is no weight, undefined where there is
// neither.
torch::Tensor masked_weight(const std::string& speaker, const torch::Tensor& weight, const torch::Tensor& mask);

// [batch, ...] -> [batch]
torch::Tensor mean_of_example(const torch::Tensor& values);

// Returns the product of all dimensions but the first.
int64_t values_an_example(const torch::Tensor& values);

// Returns probabilities, kept kKerasEpsilon from 0 and 1.
torch::Tensor clipped_probabilities(const torch::Tensor& probabilities);

// Fails where a label smoothing is outside [0, 1].
void check_smoothing(const std::string& name, double smoothing);

// Returns the fitted targets of classes in dimension `axis`, drawn towards the same probability of all.
torch::Tensor class_target(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction,
                           double smoothing, int64_t axis);
// Returns the fitted targets of two classes, drawn towards a half.
torch::Tensor binary_target(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction,
                            double smoothing);

// Fails where the dimension over which a loss is averaged is the batch.
void check_mean_axis(const std::string& name, int64_t axis);

// Returns the mean of an element's values over dimension `axis`. The last one, -1, is left to Loss.
torch::Tensor mean_over(const std::string& speaker, const torch::Tensor& values, int64_t axis);

// A batch that is all there.
class OnePart final : public WholeBatch {
 public:
  int64_t part() const override { return 0; }
  torch::Tensor sum(const torch::Tensor& mine) const override { return mine; }
  torch::Tensor rows(const torch::Tensor& mine) const override { return mine; }
};

}  // namespace cohort
