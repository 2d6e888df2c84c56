// Replicas whose work is recorded: the sum of each gradient and the update of its parameter are operations of the
// step's program, so that one launch does all of it, on all replicas. Nothing is read on the host, except with a loss
// scale: the host has to know whether there was an update. Then the step is two launches, or within a function one,
// whose program leaves everything as it was if the sums are not finite.
#include "wings/xla/step/recorded.h"

#include <ATen/Functions.h>

#include <cmath>

#include "base/fail.h"
#include "cohort/trace.h"
#include "device/backend.h"
#include "step/scaling.h"
#include "strategy/core.h"
#include "wings/xla/record/backward.h"
#include "wings/xla/record/recorder.h"

namespace cohort {

RecordedExchange::RecordedExchange(StrategyCore& core, FlatParameters& flat, const Optimizer& rule)
    : Exchange(flat), core_(core), rule_(rule), slots_(static_cast<std::size_t>(core.num_local_replicas())) {
  const torch::NoGradGuard no_grad;
  for (std::size_t r = 0; r < slots_.size(); ++r) {
    for (const FlatGroup& group : flat.groups()) slots_[r].push_back(make_slots(group.copies[r]));
    if (!rule.gradient().loss_scale) continue;
    norms_.push_back(at::zeros({}, flat.groups().front().copies[r].options().dtype(torch::kDouble)));
  }
  // The slots are no part of the first step, which is the same program as the others then.
  core.begin_outside();
}

Verdict RecordedExchange::step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced,
                               StepContext context) {
  const torch::NoGradGuard no_grad;
  const int id = replica.local_id();
  if (record::FunctionRecording::is_tracing()) {
    // The function is launched when all replicas have come to its end.
    std::vector<torch::Tensor> sums = sum(id, std::exchange(gradients, {}), reduced);
    update_in_function(id, sums, context);
    return true;
  }
  // Nothing of a step is recorded before all replicas have come to it: one that fails leaves the parameters of the
  // others as they were.
  core_.launch().meet(id, "minimize", nullptr, [](std::span<void* const>) {});
  settle(gradients);
  std::vector<torch::Tensor> sums = sum(id, std::exchange(gradients, {}), reduced);
  const bool updates = scale(id, sums, context);
  if (updates) update(copies(id), slots_[static_cast<std::size_t>(id)], sums, context);
  sums.clear();  // a tensor that is there would be a result of the program, with memory of its own
  const TraceSpan span("compute", "launch of the recorded step");
  core_.begin_together(id, "the launch of the recorded step");
  return updates;
}

// Those that torch::autograd::grad() gave may still be held by its thread.
void RecordedExchange::settle(const std::vector<torch::Tensor>& gradients) {
  for (const torch::Tensor& each : gradients) {
    if (each.defined() && each.use_count() > 1) return record::settle_backward(each);
  }
}

record::HostPart::Again RecordedExchange::update_again(int id, StepContext context) {
  const torch::NoGradGuard no_grad;
  const auto stand_in = [](const torch::Tensor& tensor) {
    return record::make_parameter({tensor.scalar_type(), tensor.sizes().vec()}, tensor.device());
  };
  const std::vector<torch::Tensor> own = copies(id);
  std::vector<torch::Tensor> sums;
  for (const std::size_t p : alike_.first) sums.push_back(stand_in(own[p]));
  clipped(sums, context);
  record::HostPart::Again again;
  for (std::size_t kind = 0; kind < sums.size(); ++kind) {
    const std::size_t p = alike_.first[kind];
    std::vector<torch::Tensor> written{stand_in(own[p])};
    std::vector<torch::Tensor> slots;
    for (const torch::Tensor& slot : slots_[static_cast<std::size_t>(id)][p]) slots.push_back(stand_in(slot));
    update_one(p, written.front(), slots, sums[kind], context);
    again.written.push_back(written.front());
    again.written.insert(again.written.end(), slots.begin(), slots.end());
  }
  return again;
}

bool RecordedExchange::was_finite(int id) const {
  return std::isfinite(norms_[static_cast<std::size_t>(id)].item<double>());
}

void RecordedExchange::spread_slots(int64_t /*iterations*/) {
  const torch::NoGradGuard no_grad;
  for (std::size_t r = 1; r < slots_.size(); ++r) {
    for (std::size_t p = 0; p < slots_[r].size(); ++p) {
      for (std::size_t s = 0; s < slots_[r][p].size(); ++s) slots_[r][p][s].copy_(slots_.front()[p][s]);
    }
  }
}

std::vector<torch::Tensor> RecordedExchange::make_slots(const torch::Tensor& parameter) const {
  const auto options = parameter.options().dtype(slot_dtype(parameter.scalar_type()));
  std::vector<torch::Tensor> own;
  for (const SlotKind& slot : slots_for(rule_, parameter.scalar_type())) {
    own.push_back(at::full_like(parameter, slot.initial, options));
  }
  return own;
}

std::vector<torch::Tensor> RecordedExchange::sum(int id, const std::vector<torch::Tensor>& gradients,
                                                 bool reduced) const {
  std::vector<torch::Tensor> sums;
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    const torch::Tensor& parameter = flat_.groups()[p].copies[static_cast<std::size_t>(id)];
    const torch::Tensor own =
        gradients[p].defined() ? gradients[p].to(parameter.scalar_type()) : at::zeros_like(parameter);
    sums.push_back(reduced ? own.clone() : record::all_reduce(own));
  }
  return sums;
}

std::vector<torch::Tensor> RecordedExchange::copies(int id) const {
  std::vector<torch::Tensor> own;
  for (const FlatGroup& group : flat_.groups()) own.push_back(group.copies[static_cast<std::size_t>(id)]);
  return own;
}

torch::Tensor RecordedExchange::norm_of(const std::vector<torch::Tensor>& sums) {
  std::vector<torch::Tensor> norms;
  for (const torch::Tensor& each : sums) norms.push_back(each.norm(2, torch::kDouble));
  return at::stack(norms).norm(2, torch::kDouble);
}

const StepContext& RecordedExchange::clipped(std::vector<torch::Tensor>& sums, const StepContext& context) const {
  const double limit = rule_.gradient().global_clipnorm;
  if (limit <= 0.0) return context;
  const torch::Tensor factor = clip_factor(norm_of(sums).mul(context.grad_scale), limit);
  for (torch::Tensor& each : sums) each = widened(each).mul_(factor);
  return context;
}

bool RecordedExchange::scale(int id, std::vector<torch::Tensor>& sums, const StepContext& context) const {
  const GradientOptions& options = rule_.gradient();
  if (!options.loss_scale) {
    clipped(sums, context);
    return true;
  }
  const torch::Tensor norm = norm_of(sums);
  core_.begin_together(id, "the launch of the recorded gradients");
  if (!std::isfinite(norm.item<double>())) return false;
  clipped(sums, context);
  return true;
}

void RecordedExchange::update_in_function(int id, std::vector<torch::Tensor>& sums, const StepContext& context) {
  const auto replica = static_cast<std::size_t>(id);
  if (!rule_.gradient().loss_scale) return update(copies(id), slots_[replica], sums, clipped(sums, context));
  const torch::Tensor norm = norm_of(sums);
  const torch::Tensor finite = norm.isfinite();
  norms_[replica].copy_(norm);
  clipped(sums, context);
  std::vector<torch::Tensor> parameters = copies(id);
  KnownNumbers known(alike_.first.size());
  for (std::size_t p = 0; p < sums.size(); ++p) {
    const record::SharedNumbers shared(known[alike_.kind[p]]);
    const torch::Tensor parameter = parameters[p].clone();
    std::vector<torch::Tensor> slots;
    for (const torch::Tensor& slot : slots_[replica][p]) slots.push_back(slot.clone());
    update_one(p, parameter, slots, sums[p], context);
    parameters[p].copy_(at::where(finite, parameter, parameters[p]));
    for (std::size_t s = 0; s < slots.size(); ++s) {
      slots_[replica][p][s].copy_(at::where(finite, slots[s], slots_[replica][p][s]));
    }
  }
}

void RecordedExchange::update(const std::vector<torch::Tensor>& parameters,
                              std::vector<std::vector<torch::Tensor>>& slots, std::vector<torch::Tensor>& sums,
                              const StepContext& context) const {
  const TraceSpan span("compute", "update");
  KnownNumbers known(alike_.first.size());
  for (std::size_t p = 0; p < sums.size(); ++p) {
    const record::SharedNumbers shared(known[alike_.kind[p]]);
    update_one(p, parameters[p], slots[p], sums[p], context);
  }
}

void RecordedExchange::update_one(std::size_t p, const torch::Tensor& parameter, std::vector<torch::Tensor>& slots,
                                  torch::Tensor& sum, const StepContext& context) const {
  const double clipnorm = rule_.gradient().clipnorm;
  if (clipnorm > 0.0) {
    const torch::Tensor norm = sum.norm(2, torch::kDouble).mul_(context.grad_scale);
    sum = widened(sum).mul_(clip_factor(norm, clipnorm));
  }
  rule_.rule().update(parameter, sum, slots, flat_.parameters()[p].treatment, context);
}

RecordedExchange::Alike RecordedExchange::find_alike() const {
  Alike alike;
  const auto same = [this](std::size_t a, std::size_t b) {
    const torch::Tensor& one = flat_.groups()[a].copies.front();
    const torch::Tensor& other = flat_.groups()[b].copies.front();
    return flat_.parameters()[a].treatment == flat_.parameters()[b].treatment &&
           one.scalar_type() == other.scalar_type() && (!rule_.rule().one_by_one() || one.sizes() == other.sizes());
  };
  for (std::size_t p = 0; p < flat_.groups().size(); ++p) {
    std::size_t kind = 0;
    while (kind < alike.first.size() && !same(alike.first[kind], p)) ++kind;
    if (kind == alike.first.size()) alike.first.push_back(p);
    alike.kind.push_back(kind);
  }
  return alike;
}

std::unique_ptr<Exchange> make_recorded_exchange(const ExchangeParts& parts) {
  return std::make_unique<RecordedExchange>(parts.core, parts.flat, parts.rule);
}

}  // namespace cohort
