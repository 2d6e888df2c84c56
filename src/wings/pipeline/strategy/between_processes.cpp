// What a function returns and changes behind the last chunk of its model is right in the process of the last stage
// only. At the end of a run that one gives the others a message: facts, the replica's random stream where a single
// microbatch has used it, variables that have changed, and the tensors of the results.
#include "wings/pipeline/strategy/between_processes.h"

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>

#include "base/access.h"
#include "base/fail.h"
#include "base/traced_elsewhere.h"
#include "strategy/absent.h"
#include "strategy/core.h"
#include "strategy/result_carrier.h"
#include "wings/pipeline/strategy/messages.h"

namespace cohort {

namespace {

// Returns how many messages a process sends this one.
int64_t messages_from(int process, const PipelineRun& run, const PipelineSchedule& schedule) {
  int64_t count = 0;
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    if (run.process_of(stage) != process) continue;
    for (const PipelineAction& action : schedule.stages()[static_cast<std::size_t>(stage)]) {
      if (action.op == PipelineOp::kSendOutput) count += run.here(action.chunk + 1) ? 1 : 0;
      if (action.op == PipelineOp::kSendGradient) count += run.here(action.chunk - 1) ? 1 : 0;
    }
  }
  return count;
}

void deliver(PipelineRun& run, StageMessage message, int from) {
  const bool gradient = message.kind == StageMessage::Kind::kGradient;
  const bool fits = message.kind != StageMessage::Kind::kResult &&
                    message.microbatch < static_cast<int64_t>(run.passages.size()) && message.chunk < run.chunks &&
                    run.here(static_cast<int>(message.chunk)) &&
                    (gradient ? message.chunk + 1 < run.chunks : message.chunk > 0);
  if (!fits) {
    fail<FailedPrecondition>("[pipeline] process ", from, " of a line of stages sent values of microbatch ",
                             message.microbatch, " for chunk ", message.chunk, ", which this one does not wait for");
  }
  run.passages[static_cast<std::size_t>(message.microbatch)]->arrive(static_cast<int>(message.chunk), gradient,
                                                                     std::move(message.values));
}

// The facts of a result: whether there was a step and random numbers were drawn, and the numbers of the variables.
torch::Tensor facts_of(const PipelineRun& run, const std::vector<std::pair<int64_t, torch::Tensor>>& changed) {
  const bool drawn = std::any_of(run.passages.begin(), run.passages.end(),
                                 [](const Passage* passage) { return passage->has_drawn(); });
  std::vector<int64_t> facts = {run.step ? 1 : 0, drawn ? 1 : 0};
  for (const auto& [number, component] : changed) facts.push_back(number);
  return torch::tensor(facts, torch::kLong);
}

void take(PipelineRun& run, const BeforeRun& before, StageMessage message) {
  const auto fail_message = [] {
    fail<DataLoss>("[pipeline] the process of the last stage sent results that cannot be read");
  };
  auto& values = message.values;
  if (values.size() < 2 || !values[0].defined() || values[0].scalar_type() != torch::kLong || values[0].numel() < 2)
    fail_message();
  const auto facts = values[0].accessor<int64_t, 1>();
  const auto variables = static_cast<std::size_t>(values[0].numel() - 2);
  if (values.size() < 2 + variables) fail_message();
  if ((facts[0] != 0) != run.step.has_value()) {
    fail<FailedPrecondition>("[pipeline] minimize() was called in one process of a line of stages and not in another; ",
                             "all processes run the same program");
  }
  const torch::NoGradGuard no_grad;
  if (run.stream.defined() && facts[1] != 0) (void)run.seed_of(0);
  if (values[1].defined()) run.replica.generator().set_state(values[1]);
  for (std::size_t i = 0; i < variables; ++i) {
    const int64_t number = facts[static_cast<int64_t>(i) + 2];
    if (number < 0 || number >= static_cast<int64_t>(before.components().size())) fail_message();
    torch::Tensor component = before.components()[static_cast<std::size_t>(number)].detach();
    component.copy_(values[2 + i]);
  }
}

}  // namespace

Arrivals::Arrivals(const std::shared_ptr<PipelineRun>& run, const PipelineSchedule& schedule) {
  if (run->line == nullptr) return;
  for (int process = 0; process < run->line->size(); ++process) {
    const int64_t count = process == run->line->rank() ? 0 : messages_from(process, *run, schedule);
    if (count == 0) continue;
    threads_.emplace_back([run, process, count] {
      leave_out_own_spans();  // the communicator has those of its messages
      try {
        const c10::StreamGuard guard(run->device_stream);
        const torch::Device device = run->replica.device();
        for (int64_t i = 0; i < count; ++i) deliver(*run, receive_message(*run->line, process, device), process);
      } catch (...) {
        run->fail_with(std::current_exception());
      }
    });
  }
}

BeforeRun::BeforeRun(StrategyCore& core, int local_id) {
  for (const Variable& variable : Access::make<Strategy>(core.shared_from_this()).variables()) {
    components_.push_back(variable.components()[static_cast<std::size_t>(local_id)]);
    versions_.push_back(static_cast<uint32_t>(components_.back()._version()));
  }
}

std::vector<std::pair<int64_t, torch::Tensor>> BeforeRun::changed() const {
  std::vector<std::pair<int64_t, torch::Tensor>> list;
  for (std::size_t i = 0; i < components_.size(); ++i) {
    if (static_cast<uint32_t>(components_[i]._version()) == versions_[i]) continue;
    list.emplace_back(static_cast<int64_t>(i), components_[i].detach());
  }
  return list;
}

void share_results(PipelineRun& run, const std::vector<detail::SharePart>& parts, const BeforeRun& before) {
  // A function that does not come to the model's second chunk has ended in the first process.
  const bool passed = std::any_of(run.passages.begin(), run.passages.end(),
                                  [](const Passage* passage) { return passage->passed_first(); });
  const int root = passed ? run.line->size() - 1 : 0;
  StageMessage message{.kind = StageMessage::Kind::kResult};
  if (run.line->rank() == root) {
    ResultCarrier results;
    run.job->join_parts(run.replica, parts);
    const auto changed = before.changed();
    message.values = {facts_of(run, changed),
                      run.stream.defined() ? torch::Tensor() : run.replica.generator().get_state()};
    for (const auto& [number, component] : changed) message.values.push_back(component);
    for (const torch::Tensor& tensor : results.tensors()) {
      message.values.push_back(tensor.defined() ? tensor.detach() : tensor);
    }
    broadcast_message(*run.line, root, run.replica.device(), std::move(message));
    return;
  }
  message = broadcast_message(*run.line, root, run.replica.device(), {});
  std::vector<torch::Tensor> values = message.values;
  take(run, before, std::move(message));
  values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values[0].numel()));
  const ResultCarrier results(std::move(values));
  run.job->join_parts(run.replica, parts);
}

}  // namespace cohort
