// The states of those who listen to a training, Keras' callbacks or a Controller's actions, as parts of a checkpoint:
// values "<kind>.<name>.<key>" and a group of tensors "<kind>.<name>" each. Numbers tell several listeners of one name
// apart: "early_stopping", "early_stopping-2".
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/checkpoint.h"
#include "cohort/train/callbacks.h"
#include "strategy/core.h"

namespace cohort {

using Listeners = std::vector<std::shared_ptr<Listener>>;

inline constexpr const char* kCallbacks = "callback";
inline constexpr const char* kActions = "action";

void save_states(const std::string& kind, const Listeners& listeners, CheckpointData& data);
// Gives the listeners their states. One whose state is not in the checkpoint is left alone.
void load_states(const std::string& kind, const Listeners& listeners, const CheckpointData& data);
// Returns, on all workers, the states of that kind in the chief's checkpoint. Collective.
CheckpointData states_from_chief(const StrategyCore& core, const std::string& kind, const CheckpointData& data);

// Returns a number as a text of a state, from which state_number() returns the same bits.
std::string state_text(double number);
std::string state_text(int64_t number);
// Returns the number of that key; nullopt if there is none.
std::optional<double> state_number(const CallbackState& state, const std::string& key);

}  // namespace cohort
