// The callbacks' states as parts of a checkpoint: values "callback.<name>.<key>" and a group of tensors
// "callback.<name>" each. Several callbacks of one name are told apart by numbers: "early_stopping",
// "early_stopping-2".
#pragma once

#include <string>
#include <vector>

#include "cohort/callbacks.h"
#include "cohort/checkpoint.h"

namespace cohort {

void save_callbacks(const std::vector<CallbackPtr>& callbacks, CheckpointData& data);
// Those whose states are not in the checkpoint are left alone.
void load_callbacks(const std::vector<CallbackPtr>& callbacks, const CheckpointData& data);

// The callbacks' part of a checkpoint as bytes, for workers that do not have the checkpoint, and back.
std::string pack_callbacks(const CheckpointData& data);
CheckpointData unpack_callbacks(const std::string& bytes);

// The callbacks by their turns, in the order of the list within a turn.
std::vector<CallbackPtr> by_turn(std::vector<CallbackPtr> callbacks);

// Numbers in states: what state_number() returns has the bits that went into state_text().
std::string state_text(double number);
std::string state_text(int64_t number);
// The value of that key; nullopt where there is none.
std::optional<double> state_number(const CallbackState& state, const std::string& key);

}  // namespace cohort
