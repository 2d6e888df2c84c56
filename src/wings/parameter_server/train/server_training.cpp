#include "wings/parameter_server/train/server_training.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/access.h"
#include "base/columns.h"
#include "base/fail.h"
#include "data/node.h"
#include "data/split.h"
#include "device/host_memory.h"
#include "train/model/model_state.h"
#include "wings/parameter_server/state.h"

namespace cohort {

namespace {

// Steps that are queued for a worker beyond the one that it does: what hides the way of a batch.
constexpr std::size_t kAheadOfWorker = 4;
constexpr std::size_t kAhead = 8;  // at least so many steps of all workers are handed out

// The work that a worker is given.
struct ShareOfStep {
  Example examples;
  std::vector<double> scales;  // ModelOutputs::mask_scales() of the whole step
};

// A step's arguments are the defined columns, and at last a text that tells which they are.
std::vector<torch::Tensor> to_arguments(const ShareOfStep& share) {
  std::vector<torch::Tensor> tensors;
  nlohmann::json description;
  description["columns"] = save_example(share.examples, tensors);
  description["scales"] = share.scales;
  tensors.push_back(tensor_of_text(description.dump()));
  return tensors;
}

ShareOfStep from_arguments(const std::vector<torch::Tensor>& tensors) {
  const auto description = nlohmann::json::parse(host_text(tensors.at(tensors.size() - 1)));
  return {.examples = restore_example(description.at("columns"), tensors),
          .scales = description.at("scales").get<std::vector<double>>()};
}

// Returns the batch in one piece, without columns that a model has no use for.
Example whole(const GlobalBatch& batch) {
  std::vector<Example> shares;
  for (const Example& share : batch) {
    shares.push_back(batch.size() == 1 ? share : share.to(torch::kCPU));
    shares.back().more.clear();
  }
  return concatenate_rows(shares);
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
    const ShareOfStep share = from_arguments(batch);
    model->train_here(model->split(share.examples), share.scales);
    std::vector<torch::Tensor> sums;
    for (const torch::Tensor& sum : model->metric_sums()) sums.push_back(sum.clone());
    return sums;
  });
}

void ServerTraining::require_in_charge(const std::string& what) const {
  if (!strategy_.is_coordinator()) {
    fail<FailedPrecondition>("[model] ", state_.name(), ": ", what, ": this is ", strategy_.task().to_string(),
                             ", which does what the chief asks for: write if (strategy.serve()) return 0; before it");
  }
  if (Access::state(strategy_)->served()) return;
  fail<FailedPrecondition>("[model] ", state_.name(), ": ", what,
                           ": serve() comes first, after build() and compile(), as on all tasks");
}

void ServerTraining::require_compiling() const {
  if (!Access::state(strategy_)->served()) return;
  fail<FailedPrecondition>("[model] ", state_.name(),
                           ": compile: the workers train the model as it was compiled before ",
                           "serve(); compile it once, before that, on all tasks");
}

void ServerTraining::begin() {
  require_in_charge("training");
  if (state_.optimizer().rule().gradient().gradient_accumulation_steps > 1) {
    fail<InvalidArgument>("[model] ", state_.name(), ": gradient_accumulation_steps is ",
                          state_.optimizer().rule().gradient().gradient_accumulation_steps,
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
  if (!example.y.defined() && example.targets.empty()) {
    fail<InvalidArgument>("[model] ", state_.name(), ": the dataset has no targets (y), which training needs");
  }
  // A worker that has a share of the step alone does not know what the masks leave of the others.
  const ModelOutputs& outputs = state_.outputs();
  const std::vector<double> scales = outputs.mask_scales(shares_ > 1 ? outputs.mask_counts(example) : torch::Tensor());
  std::vector<std::vector<torch::Tensor>> arguments;
  int64_t begin = 0;
  for (const int64_t size : sub_batch_sizes(example.size(), 1, static_cast<int>(shares_), 0)) {
    if (size == 0) continue;
    arguments.push_back(to_arguments({.examples = example.rows(begin, begin + size), .scales = scales}));
    begin += size;
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
  if (!strategy_.is_coordinator() || steps_ == 0) return;
  const ClusterCoordinator coordinator(strategy_);
  coordinator.join();
  while (!under_way_.empty()) take_oldest();
  coordinator.pull();
  steps_ = 0;
}

int64_t ServerTraining::iterations() const {
  return state_.optimizer().iterations() + steps_;
}

StepsMaker steps_by_servers() {
  return {.takers = "parameter servers",
          .serves = [](const Strategy& strategy) { return ParameterServerStrategy::of(strategy).has_value(); },
          .make = [](const std::shared_ptr<ModelState>& state) -> std::unique_ptr<TrainingSteps> {
            return std::make_unique<ServerTraining>(*ParameterServerStrategy::of(state->strategy()), state);
          }};
}

}  // namespace cohort
