#include "train/loop/events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/fail.h"
#include "data/state.h"

namespace cohort {

namespace {

// Calls the function that a callback has for the moment.
void call_at(Moment moment, Callback& callback, const RunInfo& run, Logs& logs, const BatchLogs* batch) {
  switch (moment) {
    case Moment::kTrainBegin:
      return callback.on_train_begin(run);
    case Moment::kRoundBegin:
      return callback.on_epoch_begin(run);
    case Moment::kStepBegin:
      return callback.on_batch_begin(run);
    case Moment::kStepEnd:
      return callback.on_batch_end(run, *batch);
    case Moment::kEvaluationBegin:
      return callback.on_test_begin(run);
    case Moment::kTestStepBegin:
      return callback.on_test_batch_begin(run);
    case Moment::kTestStepEnd:
      return callback.on_test_batch_end(run, *batch);
    case Moment::kEvaluationEnd:
      return callback.on_test_end(run, logs);
    case Moment::kRoundEnd:
      return callback.on_epoch_end(run, logs);
    case Moment::kTrainEnd:
      return callback.on_train_end(run, logs);
    case Moment::kPreemption:
      return callback.on_preemption(run);
    case Moment::kPredictBegin:
      return callback.on_predict_begin(run);
    case Moment::kPredictStepBegin:
      return callback.on_predict_batch_begin(run);
    case Moment::kPredictStepEnd:
      return callback.on_predict_batch_end(run);
    case Moment::kPredictEnd:
      return callback.on_predict_end(run);
    case Moment::kStepsEnd:
    case Moment::kSummary:
    case Moment::kCheckpoint:
      return;  // Keras has no names for these.
  }
}

bool goes_by_turn(Moment moment) {
  return moment == Moment::kStepEnd || moment == Moment::kRoundEnd || moment == Moment::kTrainEnd ||
         moment == Moment::kPreemption;
}

}  // namespace

void Listeners::add(const CallbackPtr& callback, const RunInfo& run) {
  add({callback->turn(),
       [callback, &run](const News& news) { call_at(news.moment, *callback, run, news.logs, news.batch); }});
  states_.push_back(callback);
}

void Listeners::add(Moment moment, std::function<void(const Logs&)> fn) {
  add({0, [moment, fn = std::move(fn)](const News& news) {
         if (news.moment == moment) fn(news.logs);
       }});
}

void Listeners::add(Hearer hearer) {
  const auto place =
      std::find_if(by_turn_.begin(), by_turn_.end(), [&](const Hearer& other) { return other.turn > hearer.turn; });
  by_turn_.insert(place, hearer);
  in_order_.push_back(std::move(hearer));
}

void Listeners::tell_all(const News& news) const {
  for (const Hearer& each : goes_by_turn(news.moment) ? by_turn_ : in_order_) each.hear(news);
}

void Listeners::tell(Moment moment) const {
  Logs none;
  tell_all({.moment = moment, .logs = none});
}

void Listeners::tell_step_end(const BatchLogs& batch, Moment moment) const {
  Logs none;
  tell_all({.moment = moment, .logs = none, .batch = &batch});
}

// Returns the names of the listeners' states in a checkpoint; empty for those that have none.
std::vector<std::string> Listeners::state_names() const {
  std::vector<std::string> names;
  std::map<std::string, int> count;
  for (const auto& each : states_) {
    const std::string name = each->state_name();
    if (name.find('.') != std::string::npos) {
      fail<InvalidArgument>("[", kind_, "s] a state is called \"", name, "\", wanted a name without dots");
    }
    const int number = name.empty() ? 0 : ++count[name];
    names.push_back(name.empty() ? "" : c10::str(kind_, ".", name, number > 1 ? c10::str("-", number) : ""));
  }
  return names;
}

void Listeners::save(CheckpointData& data) const {
  const std::vector<std::string> names = state_names();
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (names[i].empty()) continue;
    CallbackState state = states_[i]->state();
    for (const auto& [key, value] : state.values) data.values[names[i] + "." + key] = value;
    if (!state.tensors.empty()) data.tensors[names[i]] = std::move(state.tensors);
  }
}

void Listeners::load(const CheckpointData& data) const {
  const std::vector<std::string> names = state_names();
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (names[i].empty()) continue;
    CallbackState state;
    const std::string prefix = names[i] + ".";
    for (const auto& [key, value] : data.values) {
      if (key.starts_with(prefix)) state.values[key.substr(prefix.size())] = value;
    }
    const auto tensors = data.tensors.find(names[i]);
    if (tensors != data.tensors.end()) state.tensors = tensors->second;
    if (!state.values.empty() || !state.tensors.empty()) states_[i]->load_state(state);
  }
}

CheckpointData Listeners::states_from_chief(const StrategyCore& core, const CheckpointData& data) const {
  IteratorState packed;
  packed.tree = {{"values", nlohmann::json::object()}, {"tensors", nlohmann::json::array()}};
  for (const auto& [key, value] : data.values) {
    if (key.starts_with(kind_ + ".")) packed.tree["values"][key] = value;
  }
  for (const auto& [group, tensors] : data.tensors) {
    if (!group.starts_with(kind_ + ".")) continue;
    for (const auto& [name, tensor] : tensors) {
      packed.tree["tensors"].push_back({group, name});
      packed.tensors.push_back(tensor);
    }
  }
  CheckpointData states;
  restore_from(core.text_from_chief(to_bytes(packed)), "the listeners' states", [&](const IteratorState& sent) {
    for (const auto& [key, value] : sent.tree.at("values").items()) states.values[key] = value.get<std::string>();
    for (std::size_t i = 0; i < sent.tensors.size(); ++i) {
      const auto& place = sent.tree.at("tensors").at(i);
      states.tensors[place.at(0).get<std::string>()].emplace_back(place.at(1).get<std::string>(), sent.tensors[i]);
    }
  });
  return states;
}

std::string state_text(double number) {
  return fmt::format("{:.17g}", number);
}
std::string state_text(int64_t number) {
  return std::to_string(number);
}

std::optional<double> state_number(const CallbackState& state, const std::string& key) {
  const auto found = state.values.find(key);
  return found == state.values.end() ? std::nullopt : std::optional(std::strtod(found->second.c_str(), nullptr));
}

}  // namespace cohort
