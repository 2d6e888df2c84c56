// The work of a replica on its share of a global batch: forward, the losses of all outputs, the step, the metrics.
#include "base/access.h"
#include "base/tracer.h"
#include "cohort/trace.h"
#include "strategy/context.h"
#include "strategy/core.h"
#include "strategy/replica_scope.h"
#include "train/layers/layered_module.h"
#include "train/model/model_state.h"

namespace cohort {

// "scales" are a step's of which this call has a part only; see ModelOutputs::mask_scales().
ModelState::ShareLosses ModelState::losses_of(Replica& replica, const std::vector<OutputShare>& outputs,
                                              const std::vector<double>& scales) const {
  ShareLosses losses;
  losses.each.reserve(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const ModelOutput& output = outputs_->list()[i];
    const OutputShare& own = outputs[i];
    losses.each.emplace_back();
    if (!output.loss) continue;
    LossShare loss;
    if (loss_average_ == LossAverage::kReplicas) {
      loss = output.loss->mean_share(replica, own.y, own.prediction, own.weight, own.mask);
    } else if (scales.empty()) {
      loss = output.loss->share(replica, own.y, own.prediction, own.weight, own.mask);
    } else {
      loss = output.loss->share(replica, own.y, own.prediction, own.masked_weight);
    }
    if (!scales.empty() && scales[i] != 1.0) loss = {.value = loss.value * scales[i], .total = loss.total * scales[i]};
    losses.each.back() = loss.total;
    if (output.weight != 1.0) loss = {.value = loss.value * output.weight, .total = loss.total * output.weight};
    const bool first = !losses.sum.value.defined();
    losses.sum.value = first ? loss.value : losses.sum.value + loss.value;
    losses.sum.total = first ? loss.total : losses.sum.total + loss.total;
  }
  return losses;
}

std::vector<torch::Tensor> ModelState::costs(const Replica& replica, std::vector<torch::Tensor> terms) const {
  if (const LayeredModule* const layers = layers_of(replica)) {
    for (torch::Tensor& each : layers->penalties()) terms.push_back(std::move(each));
  }
  return terms;
}

// Each share has the costs as many times as it has examples, and the mean over the global batch has their mean.
void ModelState::add_penalty(Replica& replica, int64_t examples, const LossTerms& terms, ShareLosses& losses) const {
  torch::Tensor cost;
  for (const torch::Tensor& each : costs(replica, terms.list)) cost = cost.defined() ? cost + each : each;
  if (!cost.defined()) return;
  losses.sum.value = losses.sum.value + replica.global_mean(cost.expand({examples}));
  // A mean over no examples is not a number.
  if (examples > 0) losses.sum.total = losses.sum.total + cost * static_cast<double>(examples);
}

void ModelState::record(const Replica& replica, int64_t examples, const std::vector<OutputShare>& outputs,
                        const ShareLosses& losses) {
  if (is_elsewhere()) return;  // the process of the last stage counts
  const auto add = [&](MirroredMetric& metric, const torch::Tensor& total) {
    MetricState& state = metric.state(replica);
    state.add(0, total.detach());
    state.add(1, static_cast<double>(examples));
  };
  add(loss_metric_, losses.sum.total);
  std::size_t next = 0;
  for (std::size_t i = 0; i < outputs.size() && next < output_losses_.size(); ++i) {
    if (losses.each[i].defined()) add(output_losses_[next++], losses.each[i]);
  }
  for (Measured& each : metrics_) {
    const OutputShare& own = outputs[each.output];
    each.metric.update_state(replica, own.y, own.prediction.detach(), each.weighted ? own.masked_weight : own.mask);
  }
}

void StepsHere::step(const GlobalBatch& batch) {
  state_.train_here(batch, state_.scales_of_microbatches(batch));
}

// A microbatch of a pipeline does not know what the masks leave of others.
std::vector<double> ModelState::scales_of_microbatches(const GlobalBatch& batch) const {
  if (!Access::core(strategy_)->plan().in_microbatches) return {};
  std::vector<torch::Tensor> counts;
  for (const Example& share : batch) counts.push_back(outputs_->mask_counts(share));
  if (!counts.front().defined()) return {};
  return outputs_->mask_scales(strategy_.reduce(ReduceOp::kSum, PerReplica<torch::Tensor>(std::move(counts))));
}

void StepsHere::finish() {
  if (state_.has_optimizer()) (void)state_.optimizer().iterations();
}

int64_t StepsHere::iterations() const {
  return state_.optimizer().iterations_begun();
}

void ModelState::train_step(const GlobalBatch& batch) {
  if (!optimizer_.defined()) begin_training();  // a callback has compiled the model anew
  outputs_->check(batch[0]);
  steps_->step(batch);
}

void ModelState::train_here(const GlobalBatch& batch, const std::vector<double>& scales) {
  const auto body = [this, scales](Replica& replica, const Example& share) -> NamedTensors {
    std::vector<OutputShare> outputs;
    ShareLosses losses;
    {
      const TraceSpan span("compute", "forward");
      const LossTerms terms;
      outputs = judge(replica, share);
      losses = losses_of(replica, outputs, scales);
      add_penalty(replica, share.size(), terms, losses);
    }
    // Before the step ends: where work is recorded, one launch has all of it.
    record(replica, share.size(), outputs, losses);
    optimizer_[replica].minimize(losses.sum.value);
    if (after_update_.run) {
      outside_of_trace({.act = [&replica, act = after_update_.run] { at_end_of_step(replica, act); }});
    }
    return {};
  };
  if (!scales.empty()) return static_cast<void>(strategy_.run(body, batch));
  run_step(StepKind::kTrain, batch, body);
}

void ModelState::test_step(const GlobalBatch& batch) {
  outputs_->check(batch[0]);
  const std::vector<double> scales = scales_of_microbatches(batch);
  const auto body = [this, scales](Replica& replica, const Example& share) -> NamedTensors {
    const torch::NoGradGuard no_grad;
    const TraceSpan span("evaluation", "forward");
    const LossTerms terms;
    const std::vector<OutputShare> outputs = judge(replica, share);
    ShareLosses losses = losses_of(replica, outputs, scales);
    add_penalty(replica, share.size(), terms, losses);
    record(replica, share.size(), outputs, losses);
    return {};
  };
  if (!scales.empty()) return static_cast<void>(strategy_.run(body, batch));
  run_step(StepKind::kTest, batch, body);
}

PerReplica<NamedTensors> ModelState::run_step(StepKind kind, const GlobalBatch& batch,
                                              const StepFunctions::Body& body) {
  if (functions_) {
    if (auto results = run_function(kind, batch, body)) return std::move(*results);
  }
  return strategy_.run(body, batch);
}

PerReplica<NamedTensors> ModelState::predict_step(const GlobalBatch& batch) {
  return run_step(StepKind::kPredict, batch, [this](Replica& replica, const Example& share) {
    const torch::NoGradGuard no_grad;
    return named_outputs(replica, share);
  });
}

void ModelState::begin_steps() const {
  steps_->begin();
}

void ModelState::finish_steps() const {
  steps_->finish();
}

void ModelState::note_change() const {
  steps_->note_change();
}

void ModelState::require_in_charge(const std::string& what) const {
  steps_->require_in_charge(what);
}

int64_t ModelState::iterations() const {
  return optimizer_.defined() ? steps_->iterations() : loaded_step;
}

}  // namespace cohort
