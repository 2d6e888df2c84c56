#include "train/loop/position.h"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "base/log.h"
#include "data/state.h"
#include "step/optimizer_state.h"
#include "strategy/core.h"

namespace cohort {

namespace {

constexpr const char* kStopped = "stopped";  // a value in checkpoints, one of these; absent for the first
constexpr std::array<std::string_view, 4> kEndings = {"", "after the next step", "before the next step", "yes"};

std::string worker_name(int rank) {
  return "worker-" + std::to_string(rank);
}

// The replicas' own: batch-norm statistics and others.
std::vector<torch::Tensor> buffers_of(const ModelState& state) {
  std::vector<torch::Tensor> all;
  for (const auto& copy : state.module().copies()) {
    for (const torch::Tensor& buffer : copy->buffers()) all.push_back(buffer);
  }
  return all;
}

NamedTensors group(const CheckpointData& data, const std::string& name) {
  const auto found = data.tensors.find(name);
  if (found == data.tensors.end()) fail<NotFound>("[model] resume: the checkpoint has no \"", name, "\"");
  return found->second;
}

int64_t number(const std::map<std::string, std::string>& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end()) fail<NotFound>("[model] resume: the checkpoint has no value \"", name, "\"");
  return std::strtoll(found->second.c_str(), nullptr, 10);
}

// Takes the rate out of an optimizer's state and returns it as a text, which is empty where none was set.
std::string take_rate(NamedTensors& state) {
  const auto found =
      std::find_if(state.begin(), state.end(), [](const auto& item) { return item.first == kLearningRateEntry; });
  if (found == state.end()) return "";
  std::string rate = fmt::format("{:.17g}", found->second.item<double>());
  state.erase(found);
  return rate;
}

// The chief's, on all workers.
void restore_weights(ModelState& state, const CheckpointData& data) {
  const StrategyCore& core = *state.strategy().core();
  const MirroredOptimizer& optimizer = state.optimizer();
  NamedTensors slots = optimizer.state();
  core.on_chief("resume", [&] {
    state.module().load_state(group(data, "model"));
    optimizer.load_state(group(data, "optimizer"));
    slots = optimizer.state();
  });
  if (core.num_workers() == 1) return;
  state.module().copy_from_chief();
  // Only the chief knows yet whether a rate was set: it travels apart from what all workers have.
  const std::string rate = core.text_from_chief(take_rate(slots));
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : slots) tensors.push_back(tensor);
  core.broadcast_from_chief(tensors);
  if (!rate.empty()) slots.emplace_back(kLearningRateEntry, torch::tensor(std::stod(rate), torch::kDouble));
  optimizer.load_state(slots);
}

// Returns what this process has of its own: random states, metrics so far, buffers of the replicas, gradients added up
// since the last update, position of the input.
std::string save_own_state(ModelState& state, const std::string& input) {
  IteratorState own;
  const StrategyCore& core = *state.strategy().core();
  own.tensors.push_back(at::globalContext().defaultGenerator(torch::kCPU).get_state());
  for (int i = 0; i < core.num_local_replicas(); ++i) own.tensors.push_back(core.replica(i).generator().get_state());
  for (const torch::Tensor& sums : state.metric_sums()) own.tensors.push_back(sums);
  for (const torch::Tensor& buffer : buffers_of(state)) own.tensors.push_back(buffer.cpu());
  for (const torch::Tensor& sum : state.optimizer().accumulated()) own.tensors.push_back(sum);
  // A position is bytes, JSON is text.
  torch::Tensor position = torch::empty({static_cast<int64_t>(input.size())}, torch::kByte);
  std::copy(input.begin(), input.end(), position.data_ptr<uint8_t>());
  own.tensors.push_back(position);
  return to_bytes(own);
}

// Sets all but the input, and returns its position.
std::string restore_own_state(ModelState& state, const std::string& bytes) {
  std::string input;
  restore_from(bytes, "the state of this worker", [&](const IteratorState& own) {
    const StrategyCore& core = *state.strategy().core();
    const auto replicas = static_cast<std::size_t>(core.num_local_replicas());
    const std::size_t metrics = state.metric_sums().size();
    const std::vector<torch::Tensor> buffers = buffers_of(state);
    const std::size_t sums = state.optimizer().accumulated().size();
    const std::size_t wanted = 1 + replicas + metrics + buffers.size() + sums + 1;
    if (own.tensors.size() != wanted) {
      fail<InvalidArgument>("[model] ", state.name(), ": the state of this worker has ", own.tensors.size(),
                            " parts, wanted ", wanted, "; were the metrics and accumulate_steps the same?");
    }
    auto next = own.tensors.begin();
    at::Generator standard = at::globalContext().defaultGenerator(torch::kCPU);
    standard.set_state(*next++);
    for (std::size_t i = 0; i < replicas; ++i) core.replica(static_cast<int>(i)).generator().set_state(*next++);
    state.set_metric_sums({next, next + static_cast<std::ptrdiff_t>(metrics)});
    next += static_cast<std::ptrdiff_t>(metrics);
    const torch::NoGradGuard no_grad;
    for (const torch::Tensor& buffer : buffers) buffer.copy_(*next++);
    state.optimizer().load_accumulated({next, next + static_cast<std::ptrdiff_t>(sums)});
    next += static_cast<std::ptrdiff_t>(sums);
    input.assign(static_cast<const char*>(next->data_ptr()), static_cast<std::size_t>(next->numel()));
  });
  return input;
}

}  // namespace

std::optional<Logs> evaluate_or_undo(ModelState& state, bool may_be_cut,
                                     const std::function<std::optional<Logs>()>& evaluate) {
  const std::string before = may_be_cut && state.built() ? save_own_state(state, "") : "";
  std::optional<Logs> logs = evaluate();
  if (!logs && !before.empty()) restore_own_state(state, before);
  return logs;
}

CheckpointData save_training(ModelState& state, const TrainingPosition& position) {
  state.finish_steps();
  const StrategyCore& core = *state.strategy().core();
  CheckpointData data{.tensors = {{"model", state.module().state()}, {"optimizer", state.optimizer().state()}},
                      .values = {{"step", std::to_string(state.iterations())},
                                 {"epoch", std::to_string(position.epoch)},
                                 {"batch", std::to_string(position.batch)},
                                 {"workers", std::to_string(core.num_workers())},
                                 {"replicas", std::to_string(core.num_replicas_in_sync())}}};
  if (position.ending != Ending::kNone) data.values[kStopped] = kEndings.at(static_cast<std::size_t>(position.ending));
  const std::vector<std::string> workers = core.gather_texts(save_own_state(state, position.input));
  if (core.worker_rank() > 0) return {};
  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    data.bytes[worker_name(static_cast<int>(rank))] = workers[rank];
  }
  return data;
}

TrainingPosition restore_training(ModelState& state, const CheckpointData& data) {
  const StrategyCore& core = *state.strategy().core();
  state.finish_steps();
  restore_weights(state, data);
  state.note_change();
  const std::map<std::string, std::string> values =
      nlohmann::json::parse(core.text_from_chief(nlohmann::json(data.values).dump()));
  TrainingPosition position{.epoch = number(values, "epoch"), .batch = number(values, "batch"), .input = {}};
  const auto stopped = values.find(kStopped);
  for (std::size_t i = 1; stopped != values.end() && i < kEndings.size(); ++i) {
    if (stopped->second == kEndings.at(i)) position.ending = static_cast<Ending>(i);
  }
  if (number(values, "workers") != core.num_workers() || number(values, "replicas") != core.num_replicas_in_sync()) {
    if (position.batch > 0) {
      log().warn("[model] {}: saved with {} replicas on {} workers, now there are {} on {}: epoch {} is begun anew",
                 state.name(), values.at("replicas"), values.at("workers"), core.num_replicas_in_sync(),
                 core.num_workers(), position.epoch + 1);
    }
    position.batch = 0;
    return position;
  }
  for (int rank = 0; rank < core.num_workers(); ++rank) {
    const auto found = data.bytes.find(worker_name(rank));
    const std::string bytes = core.text_from_chief(found == data.bytes.end() ? "" : found->second);
    if (rank == core.worker_rank()) position.input = restore_own_state(state, bytes);
  }
  return position;
}

}  // namespace cohort
