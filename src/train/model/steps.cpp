// What a replica does with its share of a global batch, and what is read off afterwards.
#include <ATen/Functions.h>

#include "base/fail.h"
#include "base/libtorch_compat.h"
#include "cohort/trace.h"
#include "train/model/model_state.h"
#include "train/model/server_training.h"

namespace cohort {

torch::Tensor ModelState::forward(const Replica& replica, const torch::Tensor& x) const {
  const bool convert = x.is_floating_point() && x.scalar_type() != dtype_;
  const Forward& call = forwards_[static_cast<std::size_t>(replica.local_id())];
  torch::Tensor output;
  if (precision_ == PrecisionPolicy::kFloat32) {
    output = call(convert ? x.to(dtype_) : x);
  } else {
    const auto half = precision_ == PrecisionPolicy::kMixedFloat16 ? torch::kHalf : torch::kBFloat16;
    const compat::Autocast autocast(x.device().type(), half);
    output = call(convert ? x.to(dtype_) : x);
    if (output.defined()) output = output.to(dtype_);
  }
  if (output.defined() && output.dim() > 0 && output.size(0) == x.size(0)) return output;
  fail<InvalidArgument>("[model] ", name_, ": the output of ", x.size(0), " examples ",
                        output.defined() ? c10::str("has shape ", output.sizes()) : std::string("is undefined"),
                        ", wanted [", x.size(0), ", ...]");
}

void ModelState::record(const Replica& replica, const Example& share, const torch::Tensor& loss_total,
                        const torch::Tensor& prediction) {
  MetricState& loss = loss_metric_.state(replica);
  loss.add(0, loss_total);
  loss.add(1, static_cast<double>(prediction.size(0)));
  for (Measured& each : metrics_) {
    each.metric.update(replica, share.y, prediction, each.weighted ? share.weight : torch::Tensor());
  }
}

void ModelState::train_step(const GlobalBatch& batch) {
  servers_ ? servers_->step(batch) : train_here(batch);
}

void ModelState::train_here(const GlobalBatch& batch) {
  strategy_.run(
      [this](Replica& replica, const Example& share) {
        torch::Tensor prediction;
        LossShare loss;
        {
          const TraceSpan span("compute", "forward");
          prediction = forward(replica, share.x);
          loss = loss_->share(replica, share.y, prediction, share.weight);
        }
        optimizer_[replica].minimize(loss.value);
        record(replica, share, loss.total.detach(), prediction.detach());
      },
      batch);
}

void ModelState::test_step(const GlobalBatch& batch) {
  strategy_.run(
      [this](Replica& replica, const Example& share) {
        const torch::NoGradGuard no_grad;
        const TraceSpan span("evaluation", "forward");
        const torch::Tensor prediction = forward(replica, share.x);
        record(replica, share, loss_->share(replica, share.y, prediction, share.weight).total, prediction);
      },
      batch);
}

PerReplica<torch::Tensor> ModelState::predict_step(const GlobalBatch& batch) const {
  return strategy_.run(
      [this](Replica& replica, const Example& share) {
        const torch::NoGradGuard no_grad;
        return forward(replica, share.x);
      },
      batch);
}

void ModelState::begin_steps() const {
  if (servers_) servers_->begin();
}

void ModelState::finish_steps() const {
  if (servers_ && servers_->is_chief()) servers_->finish();
}

void ModelState::note_change() const {
  if (servers_) servers_->note_change();
}

void ModelState::require_in_charge(const std::string& what) const {
  if (servers_) servers_->require_chief(what);
}

int64_t ModelState::iterations() const {
  if (!optimizer_.defined()) return loaded_step;
  return servers_ ? servers_->iterations() : optimizer_.iterations();
}

void ModelState::reset_metrics() {
  loss_metric_.reset();
  for (Measured& each : metrics_) each.metric.reset();
}

template <typename Result>
Logs ModelState::collect(const Result& result) const {
  Logs logs{{"loss", result(loss_metric_).front()}};
  for (const Measured& each : metrics_) {
    const std::vector<double> numbers = result(each.metric);
    if (numbers.size() == 1) logs.set(each.name, numbers.front());
    for (std::size_t i = 0; numbers.size() > 1 && i < numbers.size(); ++i) {
      logs.set(each.name + "[" + std::to_string(i) + "]", numbers[i]);
    }
  }
  return logs;
}

Logs ModelState::results() const {
  finish_steps();
  return collect([](const MirroredMetric& metric) { return metric.results(); });
}

Logs ModelState::local_results() const {
  if (servers_) servers_->collect();
  return collect([](const MirroredMetric& metric) { return metric.local_results(); });
}

std::vector<torch::Tensor> ModelState::metric_sums() const {
  std::vector<torch::Tensor> sums{loss_metric_.local_total()};
  for (const Measured& each : metrics_) sums.push_back(each.metric.local_total());
  return sums;
}

void ModelState::set_metric_sums(const std::vector<torch::Tensor>& sums) {
  loss_metric_.set_local_total(sums.at(0));
  for (std::size_t i = 0; i < metrics_.size(); ++i) metrics_[i].metric.set_local_total(sums.at(i + 1));
}

void ModelState::add_metric_sums(const std::vector<torch::Tensor>& more) {
  loss_metric_.add_local_total(more.at(0));
  for (std::size_t i = 0; i < metrics_.size(); ++i) metrics_[i].metric.add_local_total(more.at(i + 1));
}

double ModelState::local_loss() const {
  if (servers_) servers_->collect();
  return loss_metric_.local_result();
}

}  // namespace cohort
