// Those who listen to a training, Keras' callbacks or a Controller's actions: their states as parts of a checkpoint,
// values
// "<kind>.<name>.<key>" and a group of tensors "<kind>.<name>" each. Several listeners of one name are told apart by
// numbers: "early_stopping", "early_stopping-2".
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/callbacks.h"
#include "cohort/checkpoint.h"
#include "strategy/core.h"

namespace cohort {

using Listeners = std::vector<std::shared_ptr<Listener>>;

inline constexpr const char* kCallbacks = "callback";
inline constexpr const char* kActions = "action";

void save_states(const std::string& kind, const Listeners& listeners, CheckpointData& data);
// Those whose states are not in the checkpoint are left alone.
void load_states(const std::string& kind, const Listeners& listeners, const CheckpointData& data);
// Collective. The chief's checkpoint, but for all that is not a state of that kind, on all workers.
CheckpointData states_from_chief(const StrategyCore& core, const std::string& kind, const CheckpointData& data);

// Numbers in states: what state_number() returns has the bits that went into state_text().
std::string state_text(double number);
std::string state_text(int64_t number);
// The value of that key; nullopt where there is none.
std::optional<double> state_number(const CallbackState& state, const std::string& key);

}  // namespace cohort
