#include <ATen/Functions.h>

#include <mutex>
#include <set>

#include "base/fail.h"
#include "base/log.h"
#include "train/losses/support.h"

namespace cohort {

namespace {

bool one_dimension_more(const torch::Tensor& longer, const torch::Tensor& shorter) {
  return longer.dim() == shorter.dim() + 1 && longer.size(-1) == 1;
}

// Warns once of each speaker.
void warn_of_repetition(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::scoped_lock lock(mutex);
  if (!warned.insert(speaker).second) return;
  log().warn(
      "{}: the target has shape {}, the prediction {}: values are repeated to fit, as TensorFlow does; if that is "
      "not meant, give both the same shape",
      speaker, c10::str(y.sizes()), c10::str(prediction.sizes()));
}

}  // namespace

void require_targets(const std::string& name, const torch::Tensor& y, const torch::Tensor& prediction) {
  if (!y.defined()) fail<InvalidArgument>("[losses] ", name, ": the examples have no target y");
  if (!prediction.defined() || prediction.dim() == 0) {
    fail<InvalidArgument>("[losses] ", name, ": the prediction is ", prediction.defined() ? "a scalar" : "undefined",
                          ", wanted [batch, ...]");
  }
  if (y.dim() == 0 || y.size(0) != prediction.size(0)) {
    fail<InvalidArgument>("[losses] ", name, ": the target has shape ", y.sizes(), ", the prediction ",
                          prediction.sizes(), ": the batch sizes differ");
  }
}

torch::Tensor fit_target(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction) {
  torch::Tensor target = y;
  if (y.sizes() != prediction.sizes()) {
    if (one_dimension_more(prediction, y)) target = y.unsqueeze(-1);
    if (one_dimension_more(y, prediction)) target = y.squeeze(-1);
    if (target.sizes() != prediction.sizes()) {
      fail<InvalidArgument>(speaker, ": the target has shape ", y.sizes(), ", the prediction ", prediction.sizes(),
                            "; wanted the same");
    }
  }
  return target.scalar_type() == prediction.scalar_type() ? target : target.to(prediction.scalar_type());
}

Fitted fit_values(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction) {
  const bool same =
      y.sizes() == prediction.sizes() || one_dimension_more(prediction, y) || one_dimension_more(y, prediction);
  if (same) return {fit_target(speaker, y, prediction), prediction};
  const auto widened = [](const torch::Tensor& one, const torch::Tensor& other) {
    return one.dim() == 1 && other.dim() == 2 ? one.unsqueeze(-1) : one;
  };
  const torch::Tensor target = widened(y, prediction), values = widened(prediction, y);
  bool fits = target.dim() == values.dim() && target.size(0) == values.size(0);
  for (int64_t i = 1; fits && i < target.dim(); ++i) {
    fits = target.size(i) == values.size(i) || target.size(i) == 1 || values.size(i) == 1;
  }
  if (!fits) return {fit_target(speaker, y, prediction), prediction};  // fails
  warn_of_repetition(speaker, y, prediction);
  const std::vector<torch::Tensor> both = at::broadcast_tensors({target.to(prediction.scalar_type()), values});
  return {both[0], both[1]};
}

void require_classes(const std::string& speaker, const torch::Tensor& prediction, int64_t axis) {
  if (prediction.dim() >= 2 && axis >= -prediction.dim() && axis < prediction.dim()) return;
  fail<InvalidArgument>(speaker, ": the prediction has shape ", prediction.sizes(), ", wanted [batch, ..., classes]",
                        axis == -1 ? std::string() : c10::str(" with the classes in dimension ", axis));
}

torch::Tensor fit_labels(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction,
                         int64_t axis) {
  require_classes(speaker, prediction, axis);
  if (y.is_floating_point()) {
    fail<InvalidArgument>(speaker, ": the labels are ", y.scalar_type(), ", wanted integers");
  }
  const int64_t classes_at = axis < 0 ? axis + prediction.dim() : axis;
  const auto fits = [&](const torch::Tensor& labels) {
    if (labels.dim() != prediction.dim() - 1) return false;
    for (int64_t i = 0, j = 0; i < prediction.dim(); ++i) {
      if (i != classes_at && labels.size(j++) != prediction.size(i)) return false;
    }
    return true;
  };
  torch::Tensor labels = y;
  if (!fits(labels) && y.dim() == prediction.dim() && y.size(classes_at) == 1) labels = y.squeeze(classes_at);
  if (!fits(labels)) {
    fail<InvalidArgument>(speaker, ": the labels have shape ", y.sizes(), ", the prediction ", prediction.sizes(),
                          "; wanted the same without the classes");
  }
  return labels.scalar_type() == torch::kLong ? labels : labels.to(torch::kLong);
}

torch::Tensor fit_weight(const std::string& speaker, const torch::Tensor& weight, const torch::Tensor& values) {
  torch::Tensor fitted = weight;
  if (one_dimension_more(weight, values)) fitted = weight.squeeze(-1);
  bool fits = fitted.dim() > 0 && fitted.dim() <= values.dim();
  for (int64_t i = 0; fits && i < fitted.dim(); ++i)
    fits = fitted.size(i) == values.size(i) || (i > 0 && fitted.size(i) == 1);
  if (!fits) {
    fail<InvalidArgument>(speaker, ": the weight has shape ", weight.sizes(), ", wanted one number for each of ",
                          values.sizes(), " or for each example");
  }
  while (fitted.dim() < values.dim()) fitted = fitted.unsqueeze(-1);
  return values.is_floating_point() && fitted.scalar_type() != values.scalar_type() ? fitted.to(values.scalar_type())
                                                                                    : fitted;
}

torch::Tensor masked_weight(const std::string& speaker, const torch::Tensor& weight, const torch::Tensor& mask) {
  if (!mask.defined()) return weight;
  torch::Tensor kept = mask.scalar_type() == torch::kBool ? mask : mask.to(torch::kBool);
  if (!weight.defined()) return kept;
  const bool mask_is_longer = kept.dim() > weight.dim();
  const torch::Tensor one = mask_is_longer ? fit_weight(speaker, weight, kept) : weight;
  const torch::Tensor two = mask_is_longer ? kept : fit_weight(speaker, kept, weight);
  return one * two;
}

torch::Tensor mean_of_example(const torch::Tensor& values) {
  return values.dim() > 1 ? values.flatten(1).mean(1) : values;
}

int64_t values_an_example(const torch::Tensor& values) {
  int64_t count = 1;
  for (int64_t i = 1; i < values.dim(); ++i) count *= values.size(i);
  return count;
}

torch::Tensor clipped_probabilities(const torch::Tensor& probabilities) {
  return at::clamp(probabilities, kKerasEpsilon, 1.0 - kKerasEpsilon);
}

void check_smoothing(const std::string& name, double smoothing) {
  if (smoothing >= 0.0 && smoothing <= 1.0) return;
  fail<InvalidArgument>("[losses] ", name, ": label_smoothing must be in [0, 1], got ", smoothing);
}

torch::Tensor class_target(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction,
                           double smoothing, int64_t axis) {
  torch::Tensor target = fit_target(speaker, y, prediction);
  require_classes(speaker, prediction, axis);
  if (smoothing == 0.0) return target;
  return target * (1.0 - smoothing) + smoothing / static_cast<double>(target.size(axis));
}

torch::Tensor binary_target(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction,
                            double smoothing) {
  const torch::Tensor target = fit_target(speaker, y, prediction);
  return smoothing > 0.0 ? target * (1.0 - smoothing) + 0.5 * smoothing : target;
}

void check_mean_axis(const std::string& name, int64_t axis) {
  if (axis == 0) fail<InvalidArgument>("[losses] ", name, ": axis is 0, the batch; wanted another dimension");
}

torch::Tensor mean_over(const std::string& speaker, const torch::Tensor& values, int64_t axis) {
  if (axis == -1) return values;
  if (axis >= values.dim() || axis <= -values.dim()) {
    fail<InvalidArgument>(speaker, ": axis is ", axis, ", but the prediction has shape ", values.sizes());
  }
  return values.mean(axis);
}

}  // namespace cohort
