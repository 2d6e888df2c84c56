#include "train/model/step_functions.h"

#include <algorithm>

#include "base/access.h"
#include "base/columns.h"
#include "base/log.h"
#include "base/tracer.h"
#include "strategy/core.h"
#include "train/model/model_state.h"

namespace cohort {

namespace {

constexpr std::array kFunctionNames = {"train_step", "test_step", "predict_step"};

bool same_sizes(const Example& one, const Example& other) {
  const std::vector<torch::Tensor> a = columns_of(one);
  const std::vector<torch::Tensor> b = columns_of(other);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const torch::Tensor& x, const torch::Tensor& y) {
    if (!x.defined() || !y.defined()) return x.defined() == y.defined();
    return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes();
  });
}

}  // namespace

StepFunctions::StepFunctions(const Strategy& strategy, std::string speaker, bool jit_compile)
    : strategy_(strategy),
      speaker_(std::move(speaker)),
      records_(Access::core(strategy_)->joins()),
      captures_(jit_compile && !records_) {}

void StepFunctions::leave_out(StepKind kind) {
  of(kind) = {.function = {}, .body = {}, .left_out = true};
}

bool StepFunctions::takes(StepKind kind, const GlobalBatch& batch) {
  if (functions_run_eagerly() || of(kind).left_out) return false;
  if (!records_) return captures_;
  // Where several processes share the batch, all of them come to the same answer.
  if (batch[0].size() * strategy_.num_replicas_in_sync() != batch.global_size()) return false;
  return std::all_of(batch.begin(), batch.end(), [&](const Example& share) { return same_sizes(batch[0], share); });
}

std::optional<PerReplica<NamedTensors>> StepFunctions::run(StepKind kind, const GlobalBatch& batch, const Body& body,
                                                           const std::shared_ptr<const void>& more) {
  Step& step = of(kind);
  const std::string name = kFunctionNames[static_cast<std::size_t>(kind)];
  if (!step.function) {
    step.body = body;
    const auto call = [own = &step.body](Replica& replica, const Example& share, int64_t /*global_size*/,
                                         bool /*some_empty*/, const std::shared_ptr<const void>& /*more*/) {
      return (*own)(replica, share);
    };
    FunctionOptions options{.name = name};
    if (captures_) options.jit_compile = true;
    step.function.emplace(call, options);
    // Steps without sums over the replicas are one launch, too.
    detail::set_joint(*Access::state(*step.function));
  }
  try {
    return strategy_.run(
        [&step, &more, size = batch.global_size(), empty = batch.some_empty()](Replica& replica, const Example& share) {
          return (*step.function)(replica, share, size, empty, more);
        },
        batch);
  } catch (const NotTraceable& error) {
    if (captures_) throw;  // it was asked for
    log().warn("{}the {} cannot be a function (docs/functions.md) and is recorded in each step: {}", speaker_, name,
               error.what());
  }
  leave_out(kind);
  return std::nullopt;
}

PerReplica<NamedTensors> ModelState::run_step(StepKind kind, const GlobalBatch& batch,
                                              const StepFunctions::Body& body) {
  if (functions_.takes(kind, batch)) {
    if (kind != StepKind::kPredict) {
      loss_metric_.prepare();
      for (MirroredMetric& each : output_losses_) each.prepare();
      for (Measured& each : metrics_) each.metric.prepare();
    }
    const std::shared_ptr<const void> more = kind == StepKind::kTrain ? after_update_.token : nullptr;
    if (auto results = functions_.run(kind, batch, body, more)) return std::move(*results);
    // A recording that was given up may have come as far as to gradients.
    for (const auto& copy : module_.copies()) {
      for (torch::Tensor& parameter : copy->parameters()) parameter.mutable_grad() = torch::Tensor();
    }
  }
  return strategy_.run(body, batch);
}

}  // namespace cohort
