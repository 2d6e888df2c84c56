// Averages of a model's weights, in the form of Model Garden's ExponentialMovingAverage: they begin at zero.
#include "train/controller/moving_average.h"

#include <algorithm>
#include <map>

#include "base/access.h"
#include "base/extension.h"
#include "base/fail.h"
#include "base/tracer.h"
#include "strategy/combinations.h"
#include "strategy/core.h"
#include "strategy/holders.h"
#include "strategy/module_tensors.h"
#include "strategy/parameter_layout.h"

namespace cohort {

MovingAverage::MovingAverage(const MovingAverageOptions& options, bool everywhere)
    : options_(options), everywhere_(everywhere) {
  if (!(options.average_decay >= 0.0 && options.average_decay < 1.0)) {
    fail<InvalidArgument>("[trainer] ema: average_decay is ", options.average_decay, ", wanted 0 to less than 1");
  }
  if (options.start_step < 0) {
    fail<InvalidArgument>("[trainer] ema: start_step is ", options.start_step, ", wanted 0 or more");
  }
}

// Returns what is averaged of a replica's copy: all are alike, but for the statistics, of which one replica's are as
// good as another's. They are the module's own: an optimizer that is made later gives them other memory.
NamedTensors MovingAverage::followed(const torch::nn::Module& copy) const {
  NamedTensors list;
  for (const ModuleTensor& each : distinct_parameters(copy)) list.emplace_back(each.name, each.tensor);
  if (options_.trainable_weights_only) return list;
  for (const ModuleTensor& each : distinct_buffers(copy)) {
    if (each.tensor.is_floating_point()) list.emplace_back(each.name, each.tensor);
  }
  return list;
}

// Returns the part of the weights in the averages after a step.
double MovingAverage::weight(const MovingAverageOptions& options, int64_t step) {
  if (step < options.start_step) return 1.0;
  const auto since = static_cast<double>(step - options.start_step);
  const double decay = options.average_decay;
  return 1.0 - (options.dynamic_decay ? std::min(decay, (1.0 + since) / (10.0 + since)) : decay);
}

void MovingAverage::begin_step(const MirroredModule& module, int64_t step) {
  *step_ = step;
  if (started()) return;
  const torch::NoGradGuard no_grad;
  begin(module);
  for (Copy& copy : copies_) {
    for (auto& [name, tensor] : copy.averages) tensor.zero_();
  }
}

void MovingAverage::update(int local_id) {
  const torch::NoGradGuard no_grad;
  Copy& copy = copies_[static_cast<std::size_t>(local_id)];
  const auto add = [&] {
    const double part = weight(options_, *step_);
    for (std::size_t i = 0; i < copy.followed.size(); ++i) copy.averages[i].second.lerp_(copy.followed[i].second, part);
  };
  if (Tracer::current() != nullptr) {
    const auto now = [options = options_, step = std::weak_ptr<int64_t>(step_)]() -> std::optional<double> {
      const std::shared_ptr<int64_t> own = step.lock();
      if (own == nullptr) return std::nullopt;
      return weight(options, *own);
    };
    for (const AverageRecorder& recorder : extensions<AverageRecorder>()) {
      if (recorder.record({.averages = copy.averages, .add = add, .weight = now})) return;
    }
  }
  add();
}

void MovingAverage::update() {
  for (std::size_t r = 0; r < copies_.size(); ++r) update(static_cast<int>(r));
}

NamedTensors MovingAverage::whole(const std::function<const NamedTensors&(const Copy&)>& of) const {
  NamedTensors list = of(copies_.front());
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (layout_->find(list[i].first) == nullptr) continue;
    list[i].second = layout_->whole(list[i].first, [&](int local_id) {
      return of(copies_[static_cast<std::size_t>(local_id)])[i].second.detach();
    });
  }
  return list;
}

NamedTensors MovingAverage::averages() const {
  return whole([](const Copy& copy) -> const NamedTensors& { return copy.averages; });
}

void MovingAverage::begin(const MirroredModule& module) {
  layout_ = Access::layout(module);
  const auto require_whole = [](bool apart, std::string_view feature, const char* said) {
    if (apart)
      require_pair("[trainer]", {.feature = kTrainerEma, .said = "ema is on"}, {.feature = feature, .said = said});
  };
  require_whole(layout_->crosses_processes(), kModelOfWorkers, "several workers have parts of the parameters");
  require_whole(has_stages(*Access::core(module)), kStagesOfWorkers, "several processes have stages of the pipeline");
  require_whole(Access::core(module)->shares_parameters(), kSharedParameters, "sharding.stage is 3");
  copies_.clear();
  for (const auto& replica : module.copies()) {
    Copy& copy = copies_.emplace_back();
    copy.followed = followed(*replica);
    for (const auto& [name, tensor] : copy.followed) copy.averages.emplace_back(name, tensor.detach().clone());
    if (!everywhere_ && !layout_->cuts_any()) return;
  }
}

void MovingAverage::forget() {
  copies_.clear();
}

void MovingAverage::restore(const MirroredModule& module, const NamedTensors& averages) {
  begin(module);
  const std::map<std::string, torch::Tensor> given(averages.begin(), averages.end());
  for (std::size_t r = 0; r < copies_.size(); ++r) {
    for (auto& [name, tensor] : copies_[r].averages) {
      const auto found = given.find(name);
      const std::vector<int64_t> wanted = layout_->whole_sizes(name, tensor.sizes());
      if (found == given.end() || found->second.sizes() != c10::IntArrayRef(wanted)) {
        fail<InvalidArgument>("[trainer] ema: the averages have no \"", name, "\" of shape ", c10::IntArrayRef(wanted));
      }
      tensor.copy_(layout_->part(name, found->second, static_cast<int>(r)));
    }
  }
}

NamedTensors MovingAverage::swap_into(const MirroredModule& module) const {
  NamedTensors before = whole([](const Copy& copy) -> const NamedTensors& { return copy.followed; });
  for (auto& [name, tensor] : before) tensor = tensor.detach().clone();
  module.load_state(averages(), /*strict=*/false);
  return before;
}

}  // namespace cohort
