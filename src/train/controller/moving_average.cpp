// Averages of a model's weights, in the form of Model Garden's ExponentialMovingAverage: they begin at zero.
#include "train/controller/moving_average.h"

#include <algorithm>
#include <map>

#include "base/fail.h"
#include "strategy/module_tensors.h"

namespace cohort {

MovingAverage::MovingAverage(const MovingAverageOptions& options) : options_(options) {
  if (!(options.average_decay >= 0.0 && options.average_decay < 1.0)) {
    fail<InvalidArgument>("[trainer] ema: average_decay is ", options.average_decay, ", wanted 0 to less than 1");
  }
  if (options.start_step < 0) {
    fail<InvalidArgument>("[trainer] ema: start_step is ", options.start_step, ", wanted 0 or more");
  }
}

// Returns the first replica's tensors: all are alike, but for the statistics, of which one replica's are as good as
// another's. They are the module's own: an optimizer that is made later gives them other memory.
NamedTensors MovingAverage::followed(const MirroredModule& module) const {
  NamedTensors list;
  const torch::nn::Module& first = *module.copies().front();
  for (const ModuleTensor& each : distinct_parameters(first)) list.emplace_back(each.name, each.tensor);
  if (options_.trainable_weights_only) return list;
  for (const ModuleTensor& each : distinct_buffers(first)) {
    if (each.tensor.is_floating_point()) list.emplace_back(each.name, each.tensor);
  }
  return list;
}

void MovingAverage::update(const MirroredModule& module, int64_t step) {
  const torch::NoGradGuard no_grad;
  if (averages_.empty()) {
    begin(module);
    for (auto& [name, tensor] : averages_) tensor.zero_();
  }
  double decay = 0.0;
  if (step >= options_.start_step) {
    const auto since = static_cast<double>(step - options_.start_step);
    decay = options_.average_decay;
    if (options_.dynamic_decay) decay = std::min(decay, (1.0 + since) / (10.0 + since));
  }
  for (std::size_t i = 0; i < followed_.size(); ++i) averages_[i].second.lerp_(followed_[i].second, 1.0 - decay);
}

void MovingAverage::begin(const MirroredModule& module) {
  followed_ = followed(module);
  averages_.clear();
  for (const auto& [name, tensor] : followed_) averages_.emplace_back(name, tensor.detach().clone());
}

void MovingAverage::forget() {
  followed_.clear();
  averages_.clear();
}

void MovingAverage::restore(const MirroredModule& module, const NamedTensors& averages) {
  begin(module);
  const std::map<std::string, torch::Tensor> given(averages.begin(), averages.end());
  for (auto& [name, tensor] : averages_) {
    const auto found = given.find(name);
    if (found == given.end() || found->second.sizes() != tensor.sizes()) {
      fail<InvalidArgument>("[trainer] ema: the averages have no \"", name, "\" of shape ", tensor.sizes());
    }
    tensor.copy_(found->second);
  }
}

NamedTensors MovingAverage::swap_into(const MirroredModule& module) const {
  NamedTensors before;
  for (const auto& [name, tensor] : followed(module)) before.emplace_back(name, tensor.detach().clone());
  module.load_state(averages_, /*strict=*/false);
  return before;
}

}  // namespace cohort
