#include "train/model/fit_options.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "train/model/outputs.h"

namespace cohort {

void require_fit_options(const FitOptions& options, int64_t cardinality, const std::string& speaker) {
  const auto not_negative = [&](std::string_view name, int64_t value) {
    if (value < 0) fail<InvalidArgument>(speaker, name, " must not be negative, got ", value);
  };
  const auto require_positive = [&](std::string_view name, int64_t value) {
    if (value <= 0) fail<InvalidArgument>(speaker, name, " must be positive, got ", value);
  };
  not_negative("epochs", options.epochs);
  not_negative("initial_epoch", options.initial_epoch);
  not_negative("steps_per_epoch", options.steps_per_epoch);
  not_negative("validation_steps", options.validation_steps);
  for (const int64_t number : options.validation_freq.epochs) require_positive("validation_freq", number);
  require_positive("validation_freq", options.validation_freq.every);
  for (const CallbackPtr& each : options.callbacks) {
    if (!each) fail<InvalidArgument>(speaker, "one of the callbacks is null");
  }
  if (options.steps_per_epoch == 0 && cardinality == kInfiniteCardinality) {
    fail<InvalidArgument>(speaker, "the dataset never ends; set steps_per_epoch");
  }
}

bool validates_after(const ValidationFreq& freq, int64_t epoch) {
  if (freq.epochs.empty()) return epoch % freq.every == 0;
  return std::find(freq.epochs.begin(), freq.epochs.end(), epoch) != freq.epochs.end();
}

// Keras' classes of targets: the largest entry of several, else the value itself, rounded.
Dataset with_class_weight(const Dataset& batches, const std::map<int64_t, double>& class_weight,
                          const std::string& speaker) {
  for (const auto& [label, weight] : class_weight) {
    if (label >= 0 && std::isfinite(weight)) continue;
    fail<InvalidArgument>(speaker, "class_weight gives the class ", label, " the weight ", weight,
                          ", wanted classes from 0 and finite weights");
  }
  // The last entry is for all classes that are not there.
  torch::Tensor table = at::ones({class_weight.rbegin()->first + 2}, at::kDouble);
  for (const auto& [label, weight] : class_weight) table[label] = weight;
  return batches.map([table, speaker](Example batch) {
    if (!batch.targets.empty()) {
      fail<InvalidArgument>(speaker, "class_weight is for one output, the examples have the targets ",
                            quoted_names(batch.targets));
    }
    if (batch.weight.defined()) {
      fail<InvalidArgument>(speaker, "class_weight came, but the examples have weights; give one of them");
    }
    torch::Tensor classes = batch.y;
    if (classes.dim() > 1) classes = classes.size(-1) == 1 ? classes.squeeze(-1) : classes.argmax(-1);
    if (classes.is_floating_point()) classes = classes.round();
    const int64_t others = table.size(0) - 1;
    classes = classes.to(at::kLong);
    classes = classes.masked_fill(classes.lt(0).logical_or(classes.gt(others)), others);
    const torch::Tensor& input = batch.input();
    batch.weight = table.index_select(0, classes.flatten())
                       .view_as(classes)
                       .to(input.is_floating_point() ? input.scalar_type() : at::kFloat);
    return batch;
  });
}

std::pair<Example, Example> split_for_validation(const Example& columns, const FitOptions& options,
                                                 const std::string& speaker) {
  const double split = options.validation_split;
  if (!(split > 0.0 && split < 1.0)) {
    fail<InvalidArgument>(speaker, "validation_split is ", split, ", wanted 0 (none) to less than 1");
  }
  if (options.validation_data) {
    fail<InvalidArgument>(speaker, "validation_split came beside validation_data, wanted one of them");
  }
  const int64_t examples = columns.size();
  const auto kept = static_cast<int64_t>(std::floor(static_cast<double>(examples) * (1.0 - split)));
  if (kept == 0 || kept == examples) {
    fail<InvalidArgument>(speaker, "validation_split is ", split, ", which leaves one part of ", examples,
                          " examples empty");
  }
  return {columns.rows(0, kept), columns.rows(kept, examples)};
}

}  // namespace cohort
