#include "train/callbacks/states.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/fail.h"
#include "data/state.h"

namespace cohort {

namespace {

constexpr std::string_view kCallback = "callback.";

// Returns the names of the callbacks' states in a checkpoint; empty for those that have none.
std::vector<std::string> state_names(const std::vector<CallbackPtr>& callbacks) {
  std::vector<std::string> names;
  std::map<std::string, int> count;
  for (const CallbackPtr& each : callbacks) {
    const std::string name = each->state_name();
    if (name.find('.') != std::string::npos) {
      fail<InvalidArgument>("[callbacks] a callback calls its state \"", name, "\", wanted a name without dots");
    }
    const int number = name.empty() ? 0 : ++count[name];
    names.push_back(name.empty() ? "" : c10::str(kCallback, name, number > 1 ? c10::str("-", number) : ""));
  }
  return names;
}

}  // namespace

void save_callbacks(const std::vector<CallbackPtr>& callbacks, CheckpointData& data) {
  const std::vector<std::string> names = state_names(callbacks);
  for (std::size_t i = 0; i < callbacks.size(); ++i) {
    if (names[i].empty()) continue;
    CallbackState state = callbacks[i]->state();
    for (const auto& [key, value] : state.values) data.values[names[i] + "." + key] = value;
    if (!state.tensors.empty()) data.tensors[names[i]] = std::move(state.tensors);
  }
}

void load_callbacks(const std::vector<CallbackPtr>& callbacks, const CheckpointData& data) {
  const std::vector<std::string> names = state_names(callbacks);
  for (std::size_t i = 0; i < callbacks.size(); ++i) {
    if (names[i].empty()) continue;
    CallbackState state;
    const std::string prefix = names[i] + ".";
    for (const auto& [key, value] : data.values) {
      if (key.starts_with(prefix)) state.values[key.substr(prefix.size())] = value;
    }
    const auto tensors = data.tensors.find(names[i]);
    if (tensors != data.tensors.end()) state.tensors = tensors->second;
    if (!state.values.empty() || !state.tensors.empty()) callbacks[i]->load_state(state);
  }
}

std::string pack_callbacks(const CheckpointData& data) {
  IteratorState packed;
  packed.tree = {{"values", nlohmann::json::object()}, {"tensors", nlohmann::json::array()}};
  for (const auto& [key, value] : data.values) {
    if (key.starts_with(kCallback)) packed.tree["values"][key] = value;
  }
  for (const auto& [group, tensors] : data.tensors) {
    if (!group.starts_with(kCallback)) continue;
    for (const auto& [name, tensor] : tensors) {
      packed.tree["tensors"].push_back({group, name});
      packed.tensors.push_back(tensor);
    }
  }
  return to_bytes(packed);
}

CheckpointData unpack_callbacks(const std::string& bytes) {
  CheckpointData data;
  restore_from(bytes, "the callbacks' states", [&](const IteratorState& packed) {
    for (const auto& [key, value] : packed.tree.at("values").items()) data.values[key] = value.get<std::string>();
    for (std::size_t i = 0; i < packed.tensors.size(); ++i) {
      const auto& place = packed.tree.at("tensors").at(i);
      data.tensors[place.at(0).get<std::string>()].emplace_back(place.at(1).get<std::string>(), packed.tensors[i]);
    }
  });
  return data;
}

std::vector<CallbackPtr> by_turn(std::vector<CallbackPtr> callbacks) {
  std::stable_sort(callbacks.begin(), callbacks.end(),
                   [](const CallbackPtr& a, const CallbackPtr& b) { return a->turn() < b->turn(); });
  return callbacks;
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
