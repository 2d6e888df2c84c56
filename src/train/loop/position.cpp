// A checkpoint of a training has the model and the optimizer once, and for each worker its own random states, buffers,
// metrics and position in the input (parts.h).
#include "train/loop/position.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "strategy/core.h"
#include "strategy/module_tensors.h"
#include "train/loop/parts.h"
#include "train/loop/variables.h"

namespace cohort {

namespace {

constexpr const char* kResume = "[model] resume";
// The value of a checkpoint that has the ending, and its texts; the value is absent for Ending::kNone.
constexpr const char* kStopped = "stopped";
constexpr std::array<std::string_view, 4> kEndings = {"", "after the next step", "before the next step", "yes"};

// The value of a checkpoint that has the number of parameters in training. Earlier versions did not save it.
constexpr const char* kTrained = "trained_parameters";

int64_t number(const std::map<std::string, std::string>& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end()) fail<NotFound>("[model] resume: the checkpoint has no value \"", name, "\"");
  return std::strtoll(found->second.c_str(), nullptr, 10);
}

// What is saved of this process's own: an evaluation leaves the optimizers as they are, which may keep much.
enum class Of { kTraining, kEvaluation };

// Returns what this process has of its own, with the sums of the metrics so far and the components of variables.
OwnParts own_parts(ModelState& state, Of what) {
  OwnParts own{
      .who = "[model] " + state.name(), .more = state.metric_sums(), .modules = {state.module()}, .optimizers = {}};
  if (what == Of::kTraining) own.optimizers.push_back(state.optimizer());
  for (torch::Tensor& component : own_components(state.strategy().variables()))
    own.more.push_back(std::move(component));
  return own;
}

std::string save_own_state(ModelState& state, const std::string& input, Of what = Of::kTraining) {
  return save_own(*Access::core(state.strategy()), own_parts(state, what), input);
}

// Sets everything but the input, and returns the position in the input.
std::string restore_own_state(ModelState& state, const std::string& bytes, Of what = Of::kTraining) {
  OwnState own = restore_own(*Access::core(state.strategy()), own_parts(state, what), bytes);
  const auto metrics = own.more.begin() + static_cast<std::ptrdiff_t>(state.metric_sums().size());
  state.set_metric_sums({own.more.begin(), metrics});
  set_own_components(state.strategy().variables(), {metrics, own.more.end()});
  return own.input;
}

// Returns the number of the model's parameters in training as text, of all processes of a pipeline together.
std::string trained_parameters(const ModelState& state) {
  const std::vector<ModuleTensor> all = distinct_parameters(*state.module().copies().front());
  return std::to_string(
      std::count_if(all.begin(), all.end(), [](const ModuleTensor& each) { return each.tensor.requires_grad(); }));
}

// Fails where other parameters were in training: a callback had compiled the model anew, and the program that resumes
// has not.
void require_trained(const ModelState& state, const std::map<std::string, std::string>& values) {
  const auto saved = values.find(kTrained);
  const std::string here = trained_parameters(state);
  if (saved == values.end() || saved->second == here) return;
  fail<InvalidArgument>(kResume, ": the checkpoint was saved while ", saved->second,
                        " parameters were in training, but ", here,
                        " are: compile the model as it was then (ModelTrainerOptions::stages does so)");
}

}  // namespace

std::optional<Logs> evaluate_or_undo(ModelState& state, bool may_be_cut,
                                     const std::function<std::optional<Logs>()>& evaluate) {
  const std::string before = may_be_cut && state.built() ? save_own_state(state, "", Of::kEvaluation) : "";
  std::optional<Logs> logs = evaluate();
  if (!logs && !before.empty()) restore_own_state(state, before, Of::kEvaluation);
  return logs;
}

CheckpointData save_training(ModelState& state, const TrainingPosition& position, bool sharded) {
  state.finish_steps();
  const StrategyCore& core = *Access::core(state.strategy());
  CheckpointData data{.values = {{"step", std::to_string(state.iterations())},
                                 {"epoch", std::to_string(position.epoch)},
                                 {"batch", std::to_string(position.batch)},
                                 {"workers", std::to_string(core.num_workers())},
                                 {"replicas", std::to_string(core.num_replicas_in_sync())},
                                 {kTrained, trained_parameters(state)}}};
  if (const std::string mesh = mesh_of(core); !mesh.empty()) data.values["mesh"] = mesh;
  if (position.ending != Ending::kNone) data.values[kStopped] = kEndings.at(static_cast<std::size_t>(position.ending));
  const VariableMap variables = variables_of(state.strategy(), "[model] " + state.name());
  if (!variables.empty()) data.tensors[kVariablesGroup] = values_of(variables);
  if (sharded) {
    data.bytes = {{own_name(core.worker_rank()), save_own_state(state, position.input)}};
    data.shards =
        std::make_shared<CheckpointShards>(shards_of({{"model", state.module()}}, {{"optimizer", state.optimizer()}}));
    return data;
  }
  data.tensors["model"] = state.module().state();
  data.tensors["optimizer"] = state.optimizer().state();
  data.bytes = gather_own(core, save_own_state(state, position.input));
  if (core.worker_rank() > 0) return {};
  return data;
}

TrainingPosition restore_training(ModelState& state, const CheckpointData& data) {
  const StrategyCore& core = *Access::core(state.strategy());
  state.finish_steps();
  load_group(state.module(), data, "model", kResume);
  load_group(core, state.optimizer(), data, "optimizer", kResume);
  state.note_change();
  const VariableMap variables = variables_of(state.strategy(), kResume);
  load_from_chief(core, variables, data, kResume);
  const std::map<std::string, std::string> values =
      nlohmann::json::parse(core.text_from_chief(nlohmann::json(data.values).dump()));
  require_trained(state, values);
  TrainingPosition position{.epoch = number(values, "epoch"), .batch = number(values, "batch"), .input = {}};
  const auto stopped = values.find(kStopped);
  for (std::size_t i = 1; stopped != values.end() && i < kEndings.size(); ++i) {
    if (stopped->second == kEndings.at(i)) position.ending = static_cast<Ending>(i);
  }
  const auto mesh = values.find("mesh");
  const bool same_mesh = (mesh == values.end() ? "" : mesh->second) == mesh_of(core);
  if (number(values, "workers") != core.num_workers() || number(values, "replicas") != core.num_replicas_in_sync() ||
      !same_mesh) {
    if (position.batch > 0) {
      log().warn("[model] {}: saved with {} replicas on {} workers, now there are {} on {}: epoch {} is begun anew",
                 state.name(), values.at("replicas"), values.at("workers"), core.num_replicas_in_sync(),
                 core.num_workers(), position.epoch + 1);
    }
    require_values(variables, kResume, values.at("replicas"), std::to_string(core.num_replicas_in_sync()));
    position.batch = 0;
    return position;
  }
  position.input = restore_own_state(state, own_from_chief(core, data));
  return position;
}

}  // namespace cohort
