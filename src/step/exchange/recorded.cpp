// Replicas whose work is recorded: the sum of each gradient and the update of its parameter are operations of the
// step's program, so that one launch does all of it, on all replicas. Nothing is read on the host, except with a loss
// scale, where the host decides whether there is an update: then the step is two launches.
#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/trace.h"
#include "device/backend.h"
#include "record/function_recording.h"
#include "record/recorder.h"
#include "step/exchange/exchange.h"
#include "step/scaling.h"
#include "strategy/core.h"

namespace cohort {

namespace {

class RecordedExchange final : public Exchange {
 public:
  RecordedExchange(StrategyCore& core, FlatParameters& flat, const Optimizer& rule)
      : Exchange(flat), core_(core), rule_(rule), slots_(static_cast<std::size_t>(core.num_local_replicas())) {
    const torch::NoGradGuard no_grad;
    for (std::size_t r = 0; r < slots_.size(); ++r) {
      for (const FlatGroup& group : flat.groups()) slots_[r].push_back(make_slots(group.copies[r]));
    }
    // The slots are no part of the first step, which is the same program as the others then.
    std::vector<torch::Device> devices;
    for (int r = 0; r < core.num_local_replicas(); ++r) devices.push_back(core.replica(r).device());
    core.backend(0).flush_together(devices);
  }

  bool step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, StepContext context) override {
    if (record::FunctionRecording::is_tracing()) {
      fail<Unimplemented>("[optimizer] ", rule_.name(), ": minimize() within a cohort::function on ", replica.device(),
                          ": its numbers change from step to step on the host, which a function that is recorded does "
                          "not see; call it outside of the function");
    }
    const torch::NoGradGuard no_grad;
    const int id = replica.local_id();
    // Nothing of a step is recorded before all replicas have come to it: one that fails leaves the parameters of the
    // others as they were.
    core_.launch().meet(id, "minimize", nullptr, [](std::span<void* const>) {});
    std::vector<torch::Tensor> sums = sum(id, std::exchange(gradients, {}), reduced);
    const bool updates = scale(id, sums, context);
    if (updates) update(id, sums, context);
    sums.clear();  // a tensor that is there would be a result of the program, with memory of its own
    const TraceSpan span("compute", "launch of the recorded step");
    core_.begin_together(id, "the launch of the recorded step");
    return updates;
  }

  const std::vector<std::vector<torch::Tensor>>& slots() const override { return slots_.front(); }
  void spread_slots(int64_t /*iterations*/) override {
    const torch::NoGradGuard no_grad;
    for (std::size_t r = 1; r < slots_.size(); ++r) {
      for (std::size_t p = 0; p < slots_[r].size(); ++p) {
        for (std::size_t s = 0; s < slots_[r][p].size(); ++s) slots_[r][p][s].copy_(slots_.front()[p][s]);
      }
    }
  }

 private:
  std::vector<torch::Tensor> make_slots(const torch::Tensor& parameter) const {
    const torch::ScalarType dtype = parameter.scalar_type();
    const bool half = dtype == torch::kHalf || dtype == torch::kBFloat16;
    std::vector<torch::Tensor> own;
    for (std::size_t s = 0; s < rule_.rule().slots().size(); ++s) {
      own.push_back(at::full_like(parameter, rule_.rule().initial_slot_value(s),
                                  parameter.options().dtype(half ? torch::kFloat : dtype)));
    }
    return own;
  }

  // Returns the sums over the replicas, each a tensor of its own.
  std::vector<torch::Tensor> sum(int id, const std::vector<torch::Tensor>& gradients, bool reduced) const {
    std::vector<torch::Tensor> sums;
    for (std::size_t p = 0; p < gradients.size(); ++p) {
      const torch::Tensor& parameter = flat_.groups()[p].copies[static_cast<std::size_t>(id)];
      const torch::Tensor own =
          gradients[p].defined() ? gradients[p].to(parameter.scalar_type()) : at::zeros_like(parameter);
      sums.push_back(reduced ? own.clone() : record::all_reduce(own));
    }
    return sums;
  }

  // Follows scaling.h. Returns false when the step is to be left out.
  bool scale(int id, std::vector<torch::Tensor>& sums, StepContext& context) const {
    const GradientOptions& options = rule_.gradient();
    if (options.global_clipnorm <= 0.0 && !options.loss_scale) return true;
    std::vector<torch::Tensor> norms;
    for (const torch::Tensor& each : sums) norms.push_back(each.norm(2, torch::kDouble));
    const torch::Tensor norm = at::stack(norms).norm(2, torch::kDouble);
    if (options.loss_scale) {
      core_.begin_together(id, "the launch of the recorded gradients");
      const auto value = norm.item<double>();
      return scale_by_norm(value * value, options, context);
    }
    const torch::Tensor factor = clip_factor(norm.mul(context.grad_scale), options.global_clipnorm);
    for (torch::Tensor& each : sums) each.mul_(factor);
    return true;
  }

  void update(int id, std::vector<torch::Tensor>& sums, const StepContext& context) {
    const TraceSpan span("compute", "update");
    const double clipnorm = rule_.gradient().clipnorm;
    for (std::size_t p = 0; p < sums.size(); ++p) {
      if (clipnorm > 0.0) {
        const torch::Tensor norm = sums[p].norm(2, torch::kDouble).mul_(context.grad_scale);
        sums[p].mul_(clip_factor(norm, clipnorm));
      }
      const auto r = static_cast<std::size_t>(id);
      rule_.rule().update(flat_.groups()[p].copies[r], sums[p], slots_[r][p], flat_.parameters()[p].treatment, context);
    }
  }

  StrategyCore& core_;
  Optimizer rule_;
  std::vector<std::vector<std::vector<torch::Tensor>>> slots_;  // [replica][parameter][slot]
};

}  // namespace

std::unique_ptr<Exchange> make_recorded_exchange(const ExchangeParts& parts) {
  return std::make_unique<RecordedExchange>(parts.core, parts.flat, parts.rule);
}

}  // namespace cohort
