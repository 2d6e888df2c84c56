// The update of a step that is captured as a part of a graph. Its numbers are in the device's memory, where the host
// writes those of each run before the graph begins, so that nothing is between backward and update but an exchange with
// other replicas, if there is one that is not captured, too. Where an update cannot be captured, exchange and update
// are what the host does in each run.
#include <algorithm>

#include "base/access.h"
#include "device/backend.h"
#include "device/graph_capture.h"
#include "step/step.h"
#include "strategy/core.h"

namespace cohort {

namespace {

constexpr int64_t kScales = 2;  // at the beginning of a row

}  // namespace

// Gradients that are added up over several calls are updated by some of them, which a graph does not tell apart.
void Step::make_graph_numbers() {
  graph_numbers_.clear();
  if (rule_.gradient().gradient_accumulation_steps > 1) return;
  const StrategyCore& core = *Access::core(module_);
  std::vector<std::unique_ptr<GraphNumbers>> made;
  for (int id = 0; id < core.num_local_replicas(); ++id) {
    if (!core.backend(id).captures()) return;
    const auto numbers = exchange_->graph_numbers(id, {});
    if (!numbers) return;
    made.push_back(std::make_unique<GraphNumbers>(kScales + 2 * static_cast<int64_t>(numbers->size()),
                                                  core.replica(id).device(), rule_.gradient().loss_scale.has_value()));
  }
  graph_numbers_ = std::move(made);
}

std::vector<double> Step::graph_row(int local_id, int64_t iterations, double loss_scale) const {
  std::vector<double> row{loss_scale * fixed_scale(), loss_scale};
  for (const double scale : {loss_scale, 1.0}) {
    const auto numbers = exchange_->graph_numbers(local_id, context_after(iterations, scale));
    row.insert(row.end(), numbers->begin(), numbers->end());
  }
  return row;
}

// The norm of the step before the last one has arrived when the last one has begun, so that the device is not waited
// for.
void Step::write_row(int local_id) const {
  ReplicaProgress& progress = state_->unsettled(local_id);
  const bool known_there = !progress.pending.empty() && progress.pending.back().there().defined();
  progress.settle(known_there ? 1 : 0);
  std::vector<std::vector<double>> rows;
  for (const bool updated : {false, true}) {
    ReplicaProgress then{.iterations = progress.iterations, .scaler = progress.scaler};
    if (known_there) then.count(updated);
    rows.push_back(graph_row(local_id, then.iterations, then.scaler.scale()));
    if (!known_there) break;
  }
  graph_numbers_[static_cast<std::size_t>(local_id)]->write(rows);
}

torch::Tensor Step::row_in_graph(GraphCapture& capture, int local_id) const {
  const std::weak_ptr<const Step> self = weak_from_this();
  const auto write = [self, local_id] {
    if (const std::shared_ptr<const Step> step = self.lock()) step->write_row(local_id);
  };
  return graph_numbers_[static_cast<std::size_t>(local_id)]->read(capture, {.act = write, .owner = self});
}

void Step::update_in_graph(GraphCapture& capture, Replica& replica, Given given) {
  const bool has_sparse = std::any_of(given.gradients.begin(), given.gradients.end(),
                                      [](const torch::Tensor& each) { return each.defined() && each.is_sparse(); });
  const int id = replica.local_id();
  if (graph_numbers_.empty() || has_sparse) {
    update_by_host(capture, replica, std::move(given));
    if (!graph_numbers_.empty()) graph_numbers_[static_cast<std::size_t>(id)]->end(capture);
    return;
  }
  const torch::Tensor row = row_in_graph(capture, id);
  const int64_t size = (row.numel() - kScales) / 2;
  const torch::Tensor numbers = row.narrow(0, kScales + (given.scaled ? 0 : size), size);
  const std::weak_ptr<Step> self = weak_from_this();
  const StepContext now = context_after(state_->unsettled(id).iterations, 1.0);
  GraphNumbers& own = *graph_numbers_[static_cast<std::size_t>(id)];
  const Verdict verdict = exchange_->step_in_graph(capture, replica,
                                                   {.gradients = given.gradients,
                                                    .reduced = given.reduced,
                                                    .context = now,
                                                    .numbers = numbers,
                                                    .note = [&own](const Verdict& made) { own.note(made.there()); },
                                                    .owner = self});
  own.end(capture);
  const auto count = [self, id, verdict] {
    const std::shared_ptr<Step> step = self.lock();
    if (step != nullptr) step->state_->unsettled(id).pending.push_back(verdict.of_last_run());
  };
  capture.behind({.act = count, .owner = self});
}

// The host gives the device the numbers of the update with the kernels that compute it.
void Step::update_by_host(GraphCapture& capture, Replica& replica, Given given) {
  const std::weak_ptr<Step> self = weak_from_this();
  const auto act = [self, &replica, given = std::move(given)] {
    if (const std::shared_ptr<Step> step = self.lock()) step->update(replica, given);
  };
  capture.part({.act = act, .owner = self});
}

}  // namespace cohort
