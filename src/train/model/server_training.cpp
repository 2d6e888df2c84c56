#include "train/model/server_training.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/access.h"
#include "base/fail.h"
#include "data/split.h"
#include "parameter_server/state.h"
#include "train/model/model_state.h"

namespace cohort {

namespace {

// Steps that are queued for a worker beyond the one that it does: what hides the way of a batch.
constexpr std::size_t kAheadOfWorker = 4;
constexpr std::size_t kAhead = 8;  // at least, of all

// As the chief sends it: x, y and, where there are any, weights.
Example example_of(const std::vector<torch::Tensor>& tensors) {
  return {.x = tensors.at(0), .y = tensors.at(1), .weight = tensors.size() > 2 ? tensors[2] : torch::Tensor()};
}

Example whole(const GlobalBatch& batch) {
  if (batch.size() == 1) return batch[0];
  std::vector<torch::Tensor> x;
  std::vector<torch::Tensor> y;
  std::vector<torch::Tensor> weight;
  for (const Example& share : batch) {
    x.push_back(share.x.cpu());
    if (share.y.defined()) y.push_back(share.y.cpu());
    if (share.weight.defined()) weight.push_back(share.weight.cpu());
  }
  const auto joined = [](const auto& parts) { return parts.empty() ? torch::Tensor() : at::cat(parts); };
  return {.x = joined(x), .y = joined(y), .weight = joined(weight)};
}

}  // namespace

ServerTraining::ServerTraining(const ParameterServerStrategy& strategy, const std::shared_ptr<ModelState>& state)
    : strategy_(strategy), state_(*state), step_(state->name() + "/train") {
  if (Access::state(strategy)->options().consistency.kind == Consistency::Kind::kSynchronous) {
    shares_ = static_cast<std::size_t>(Access::state(strategy)->cluster().num_tasks("worker"));
  }
  strategy.register_step(step_, [weak = std::weak_ptr(state)](const std::vector<torch::Tensor>& batch) {
    const std::shared_ptr<ModelState> model = weak.lock();
    if (!model) fail<FailedPrecondition>("[model] the model of a step that was scheduled is gone");
    model->begin_training();
    model->reset_metrics();
    model->train_here(model->split(example_of(batch)));
    std::vector<torch::Tensor> sums;
    for (const torch::Tensor& sum : model->metric_sums()) sums.push_back(sum.clone());
    return sums;
  });
}

void ServerTraining::require_chief(const std::string& what) const {
  if (!is_chief()) {
    fail<FailedPrecondition>("[model] ", state_.name(), ": ", what, ": this is ", strategy_.task().to_string(),
                             ", which does what the chief asks for: write if (strategy.serve()) return 0; before it");
  }
  if (Access::state(strategy_)->served()) return;
  fail<FailedPrecondition>("[model] ", state_.name(), ": ", what,
                           ": serve() comes first, after build() and compile(), as on all tasks");
}

void ServerTraining::begin() {
  require_chief("training");
  if (state_.optimizer().rule().gradient().accumulate_steps > 1) {
    fail<InvalidArgument>("[model] ", state_.name(), ": accumulate_steps is ",
                          state_.optimizer().rule().gradient().accumulate_steps,
                          ", but steps go to several workers: use larger batches");
  }
  under_way_.clear();
  const bool new_coordinator = !Access::state(strategy_)->has_coordinator();
  const ClusterCoordinator coordinator(strategy_);
  if (changed_ && !new_coordinator) coordinator.push();
  changed_ = false;
}

std::size_t ServerTraining::most_ahead() const {
  const auto workers = static_cast<std::size_t>(std::max(1, ClusterCoordinator(strategy_).num_workers()));
  return std::max(kAhead, kAheadOfWorker * workers);
}

void ServerTraining::step(const GlobalBatch& batch) {
  const Example example = whole(batch);
  if (!example.y.defined()) {
    fail<InvalidArgument>("[model] ", state_.name(), ": the dataset has no targets (y), which training needs");
  }
  std::vector<std::vector<torch::Tensor>> arguments;
  int64_t begin = 0;
  for (const int64_t size : sub_batch_sizes(example.size(), 1, static_cast<int>(shares_), 0)) {
    if (size == 0) continue;
    const Example share = example.rows(begin, begin + size);
    begin += size;
    arguments.push_back({share.x, share.y});
    if (share.weight.defined()) arguments.back().push_back(share.weight);
  }
  const ClusterCoordinator coordinator(strategy_);
  for (RemoteValue& value : coordinator.schedule_shares(step_, std::move(arguments))) {
    under_way_.push_back(std::move(value));
  }
  ++steps_;
  const std::size_t most = most_ahead();
  while (under_way_.size() > most) take_oldest();
}

void ServerTraining::take_oldest() {
  const std::vector<torch::Tensor> sums = under_way_.front().fetch(Access::state(strategy_)->options().timeout);
  under_way_.pop_front();
  state_.add_metric_sums(sums);
}

void ServerTraining::collect() {
  while (!under_way_.empty() && under_way_.front().ready()) take_oldest();
}

void ServerTraining::finish() {
  if (steps_ == 0) return;
  const ClusterCoordinator coordinator(strategy_);
  coordinator.join();
  while (!under_way_.empty()) take_oldest();
  coordinator.pull();
  steps_ = 0;
}

int64_t ServerTraining::iterations() const {
  return state_.optimizer().iterations() + steps_;
}

}  // namespace cohort
