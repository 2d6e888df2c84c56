#include "train/loop/events.h"

#include <fmt/format.h>

#include <cstdlib>
#include <map>

#include "base/fail.h"
#include "data/state.h"

namespace cohort {

namespace {

// Returns the names of the listeners' states in a checkpoint; empty for those that have none.
std::vector<std::string> state_names(const std::string& kind, const Listeners& listeners) {
  std::vector<std::string> names;
  std::map<std::string, int> count;
  for (const auto& each : listeners) {
    const std::string name = each->state_name();
    if (name.find('.') != std::string::npos) {
      fail<InvalidArgument>("[", kind, "s] a state is called \"", name, "\", wanted a name without dots");
    }
    const int number = name.empty() ? 0 : ++count[name];
    names.push_back(name.empty() ? "" : c10::str(kind, ".", name, number > 1 ? c10::str("-", number) : ""));
  }
  return names;
}

}  // namespace

void save_states(const std::string& kind, const Listeners& listeners, CheckpointData& data) {
  const std::vector<std::string> names = state_names(kind, listeners);
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    if (names[i].empty()) continue;
    CallbackState state = listeners[i]->state();
    for (const auto& [key, value] : state.values) data.values[names[i] + "." + key] = value;
    if (!state.tensors.empty()) data.tensors[names[i]] = std::move(state.tensors);
  }
}

void load_states(const std::string& kind, const Listeners& listeners, const CheckpointData& data) {
  const std::vector<std::string> names = state_names(kind, listeners);
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    if (names[i].empty()) continue;
    CallbackState state;
    const std::string prefix = names[i] + ".";
    for (const auto& [key, value] : data.values) {
      if (key.starts_with(prefix)) state.values[key.substr(prefix.size())] = value;
    }
    const auto tensors = data.tensors.find(names[i]);
    if (tensors != data.tensors.end()) state.tensors = tensors->second;
    if (!state.values.empty() || !state.tensors.empty()) listeners[i]->load_state(state);
  }
}

CheckpointData states_from_chief(const StrategyCore& core, const std::string& kind, const CheckpointData& data) {
  IteratorState packed;
  packed.tree = {{"values", nlohmann::json::object()}, {"tensors", nlohmann::json::array()}};
  for (const auto& [key, value] : data.values) {
    if (key.starts_with(kind + ".")) packed.tree["values"][key] = value;
  }
  for (const auto& [group, tensors] : data.tensors) {
    if (!group.starts_with(kind + ".")) continue;
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
