#include "train/model/outputs.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "base/columns.h"
#include "base/fail.h"
#include "train/losses/support.h"

namespace cohort {

namespace {

// Multiplies two weights or two masks, of which one may have dimensions that the other lacks at the end.
torch::Tensor times(const torch::Tensor& a, const torch::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  torch::Tensor left = a;
  torch::Tensor right = b;
  while (left.dim() < right.dim()) left = left.unsqueeze(-1);
  while (right.dim() < left.dim()) right = right.unsqueeze(-1);
  return left * right;
}

const torch::Tensor* tensor_named(const NamedTensors& tensors, std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& each) { return each.first == name; });
  return found == tensors.end() ? nullptr : &found->second;
}

template <typename List>
void require_once(const std::string& speaker, std::string_view what, const List& list) {
  for (auto each = list.begin(); each != list.end(); ++each) {
    const bool again = std::any_of(list.begin(), each, [&](const auto& before) { return before.first == each->first; });
    if (again) fail<InvalidArgument>(speaker, what, " has \"", each->first, "\" twice");
  }
}

}  // namespace

std::string quoted_names(const NamedTensors& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return text;
}

ModelOutputs::ModelOutputs(std::string speaker, const std::vector<std::string>& declared, const CompileOptions& options)
    : speaker_(std::move(speaker)) {
  if (options.loss && !options.losses.empty()) {
    fail<InvalidArgument>(speaker_, "compile: both loss and losses are set; loss is for a model with one output");
  }
  if (!options.loss && options.losses.empty()) {
    fail<InvalidArgument>(speaker_, "compile: there is no loss: set loss or, for several outputs, losses by name");
  }
  add_outputs(declared, options);
  for (const ModelOutput& each : list_) {
    if (!each.loss || each.loss->reduction() != LossReduction::kNone) continue;
    fail<InvalidArgument>(speaker_, "compile: the loss ", each.loss->name(),
                          " has the reduction kNone, but a step takes the gradients of one number");
  }
  add_weights(options);
  add_metrics(options);
}

std::string ModelOutputs::names() const {
  std::string text;
  for (const ModelOutput& each : list_) text += (text.empty() ? "\"" : ", \"") + each.name + "\"";
  return text;
}

void ModelOutputs::add_outputs(const std::vector<std::string>& declared, const CompileOptions& options) {
  if (options.loss) {
    if (declared.size() > 1) {
      fail<InvalidArgument>(speaker_, "compile: the model has ", declared.size(),
                            " outputs; set losses, which has one for each by name, instead of loss");
    }
    list_.push_back({.name = declared.empty() ? "" : declared.front(), .loss = options.loss});
    return;
  }
  require_once(speaker_, "compile: losses", options.losses);
  // The order is the one in which the module returns them, if that was said.
  for (const std::string& name : declared) {
    const auto given = std::find_if(options.losses.begin(), options.losses.end(),
                                    [&](const auto& each) { return each.first == name; });
    if (given == options.losses.end()) {
      fail<InvalidArgument>(speaker_, "compile: the output \"", name,
                            "\" has no loss: give it one in losses, or std::nullopt");
    }
    list_.push_back({.name = name, .loss = given->second});
  }
  if (declared.empty()) {
    for (const auto& [name, loss] : options.losses) list_.push_back({.name = name, .loss = loss});
  }
  for (const auto& [name, loss] : options.losses) index_of(name, "losses");
  if (std::none_of(list_.begin(), list_.end(), [](const ModelOutput& each) { return each.loss.has_value(); })) {
    fail<InvalidArgument>(speaker_, "compile: none of the outputs ", names(), " has a loss");
  }
}

void ModelOutputs::add_weights(const CompileOptions& options) {
  require_once(speaker_, "compile: loss_weights", options.loss_weights);
  for (const auto& [name, weight] : options.loss_weights) {
    ModelOutput& output = list_[index_of(name, "loss_weights")];
    if (!output.loss) fail<InvalidArgument>(speaker_, "compile: loss_weights has \"", name, "\", which has no loss");
    if (!std::isfinite(weight)) {
      fail<InvalidArgument>(speaker_, "compile: loss_weights: that of \"", name, "\" is ", weight);
    }
    output.weight = weight;
  }
}

void ModelOutputs::add_metrics(const CompileOptions& options) {
  if (!single() && !(options.metrics.empty() && options.weighted_metrics.empty())) {
    fail<InvalidArgument>(speaker_, "compile: the outputs are ", names(),
                          "; give them metrics by name, in output_metrics or weighted_output_metrics");
  }
  for (ModelOutput& each : list_) each.needs_target = each.loss.has_value();
  for (const auto& [name, metrics] : options.output_metrics) {
    list_[index_of(name, "output_metrics")].needs_target = true;
  }
  for (const auto& [name, metrics] : options.weighted_output_metrics) {
    list_[index_of(name, "weighted_output_metrics")].needs_target = true;
  }
}

std::size_t ModelOutputs::index_of(std::string_view name, std::string_view what) const {
  for (std::size_t i = 0; i < list_.size(); ++i) {
    if (list_[i].name == name) return i;
  }
  fail<InvalidArgument>(speaker_, what, " has \"", name, "\", which is no output; ",
                        list_.front().name.empty() ? std::string("the only one has no name: set losses to name it")
                                                   : "there are " + names());
}

void ModelOutputs::check(const Example& batch) const {
  if (batch.x.defined() && !batch.inputs.empty()) {
    fail<InvalidArgument>(speaker_, "the examples have x and inputs ", quoted_names(batch.inputs),
                          "; give x its name among them");
  }
  if (batch.y.defined() && !batch.targets.empty()) {
    fail<InvalidArgument>(speaker_, "the examples have y and targets ", quoted_names(batch.targets),
                          "; give y its name among them");
  }
  if (!single() && batch.y.defined()) {
    fail<InvalidArgument>(speaker_, "the examples have y, but there are the outputs ", names(),
                          ": give them targets by these names");
  }
  if (!single() || !same_names(batch, {})) check_names(batch);
}

void ModelOutputs::check_names(const Example& batch) const {
  // The target of an only output without a name is any one, which gives it the name.
  const bool named = !single() || !list_.front().name.empty();
  for (const NamedColumns& group : kNamedColumns) {
    const NamedTensors& columns = batch.*group.columns;
    require_once(speaker_, group.name, columns);
    if (columns.empty() || group.columns == &Example::inputs) continue;
    if (named) {
      for (const auto& [name, column] : columns) index_of(name, group.name);
    } else if (columns.size() > 1 || batch.targets.size() != 1 ||
               columns.front().first != batch.targets.front().first) {
      fail<InvalidArgument>(speaker_, "the examples have ", group.name, " ", quoted_names(columns),
                            ", but the model has one output, whose columns are y, weight and mask or have one name");
    }
  }
  for (const ModelOutput& each : list_) {
    if (single() || !each.needs_target || tensor_named(batch.targets, each.name) != nullptr) continue;
    fail<InvalidArgument>(speaker_, "the examples have no target for the output \"", each.name, "\"; they have ",
                          batch.targets.empty() ? "none" : quoted_names(batch.targets));
  }
}

std::vector<torch::Tensor> ModelOutputs::arrange(NamedTensors returned) const {
  std::vector<torch::Tensor> ordered;
  ordered.reserve(list_.size());
  const bool by_position =
      std::all_of(returned.begin(), returned.end(), [](const auto& each) { return each.first.empty(); });
  if (by_position || (single() && list_.front().name.empty())) {
    if (returned.size() != list_.size()) {
      fail<InvalidArgument>(speaker_, "forward() returned ", returned.size(), " outputs",
                            by_position ? "" : ": " + quoted_names(returned), "; there is ",
                            single() ? "one loss" : "a loss for each of " + names(),
                            ", wanted CompileOptions::losses with all of them");
    }
    for (auto& [name, tensor] : returned) ordered.push_back(std::move(tensor));
    return ordered;
  }
  for (const ModelOutput& each : list_) {
    const torch::Tensor* tensor = tensor_named(returned, each.name);
    if (tensor == nullptr) {
      fail<InvalidArgument>(speaker_, "losses has \"", each.name, "\", but forward() returned ",
                            quoted_names(returned));
    }
    ordered.push_back(*tensor);
  }
  for (const auto& item : returned) {
    const std::string& name = item.first;
    const bool known = std::any_of(list_.begin(), list_.end(), [&](const auto& each) { return each.name == name; });
    if (known) continue;
    fail<InvalidArgument>(speaker_, "the output \"", name, "\" has no loss: give it one in losses, or std::nullopt");
  }
  return ordered;
}

// If there is one output, check() has seen that the only column is its own.
const torch::Tensor* ModelOutputs::column(const NamedTensors& columns, std::size_t output) const {
  if (columns.empty()) return nullptr;
  return single() ? &columns.front().second : tensor_named(columns, list_[output].name);
}

torch::Tensor ModelOutputs::mask_of(const Example& share, std::size_t output) const {
  const torch::Tensor* own = column(share.masks, output);
  const torch::Tensor mask = own == nullptr ? share.mask : times(share.mask, *own);
  return mask.defined() ? mask.to(torch::kBool) : mask;
}

OutputShare ModelOutputs::share_of(const Example& share, std::size_t output, torch::Tensor prediction) const {
  const torch::Tensor* target = column(share.targets, output);
  const torch::Tensor* weight = column(share.weights, output);
  OutputShare result{.prediction = std::move(prediction),
                     .y = target == nullptr ? share.y : *target,
                     .weight = weight == nullptr ? share.weight : times(share.weight, *weight),
                     .mask = mask_of(share, output)};
  if (!result.mask.defined()) {
    result.masked_weight = result.weight;
    return result;
  }
  const auto wanted = result.prediction.sizes().slice(0, std::min(result.mask.dim(), result.prediction.dim()));
  if (result.mask.dim() == 0 || result.mask.sizes() != wanted) {
    fail<InvalidArgument>(speaker_, "the mask ", single() ? "" : "of \"" + list_[output].name + "\" ", "has shape ",
                          result.mask.sizes(), ", wanted the first dimensions of the prediction's ",
                          result.prediction.sizes());
  }
  result.masked_weight = masked_weight(speaker_, result.weight, result.mask);
  return result;
}

torch::Tensor ModelOutputs::mask_counts(const Example& batch) const {
  if (!batch.mask.defined() && batch.masks.empty()) return {};
  std::vector<double> counts;
  for (std::size_t i = 0; i < list_.size(); ++i) {
    const torch::Tensor mask = mask_of(batch, i);
    const bool any = mask.defined();
    counts.insert(counts.end(), {any ? static_cast<double>(mask.numel()) : 0.0,
                                 any ? mask.to(torch::kDouble).sum().item<double>() : 0.0});
  }
  return torch::tensor(counts, torch::kDouble).view({-1, 2});
}

// A sum has no mean to correct.
std::vector<double> ModelOutputs::mask_scales(const torch::Tensor& counts) const {
  std::vector<double> scales;
  for (std::size_t i = 0; counts.defined() && i < list_.size(); ++i) {
    const torch::Tensor own = counts[static_cast<int64_t>(i)];
    const double all = own[0].item<double>(), left = own[1].item<double>();
    const bool is_mean = list_[i].loss && list_[i].loss->reduction() == LossReduction::kSumOverBatchSize;
    scales.push_back(is_mean && left > 0.0 ? all / left : 1.0);
  }
  return scales;
}

}  // namespace cohort
