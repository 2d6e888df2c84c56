// The parts of a training in a checkpoint, for fit() and for loops of one's own: modules and optimizers, which the
// chief reads for all workers, and what each process has of its own.
#pragma once

#include <torch/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/shards.h"
#include "cohort/checkpoint.h"
#include "cohort/mirrored.h"
#include "cohort/optimizer.h"
#include "strategy/core.h"

namespace cohort {

// Returns a group of tensors of the checkpoint. NotFound: there is no such group; `who` opens the message.
const NamedTensors& tensors_of(const CheckpointData& data, const std::string& name, const std::string& who);

// Gives the module or the optimizer of all workers what read() returns, which is called on the chief only. An exception
// of it is rethrown on the chief, and as Unavailable on the others. Collective.
using ReadTensors = std::function<NamedTensors()>;
struct ChiefLoad {
  std::string what = "resume";  // what failed, for the others
  std::string source = "";      // opens the messages of tensors that do not fit; empty: they stay as they are
  bool strict = true;           // see MirroredModule::load_state()
};
void load_from_chief(const MirroredModule& module, const ReadTensors& read, const ChiefLoad& how = {});
void load_from_chief(const StrategyCore& core, const MirroredOptimizer& optimizer, const ReadTensors& read);

// Gives the module or the optimizer of all workers a group of a checkpoint: what each of them needs, where the data has
// shards, else the chief's. Collective. NotFound: there is no such group; `who` opens the message.
void load_group(const MirroredModule& module, const CheckpointData& data, const std::string& name,
                const std::string& who);
void load_group(const StrategyCore& core, const MirroredOptimizer& optimizer, const CheckpointData& data,
                const std::string& name, const std::string& who);

// Returns what this worker has of these parts. Collective.
CheckpointShards shards_of(const std::map<std::string, MirroredModule>& modules,
                           const std::map<std::string, MirroredOptimizer>& optimizers);

// The state that each process has of its own: random states, buffers of the replicas, gradients that were added up
// since the last update, the position in its input, and `more`.
struct OwnParts {
  std::string who;  // opens messages: "[model] NAME"
  std::vector<torch::Tensor> more;
  std::vector<MirroredModule> modules;
  std::vector<MirroredOptimizer> optimizers;
};

// Returns that state as bytes, with the position in the input.
std::string save_own(const StrategyCore& core, const OwnParts& parts, const std::string& input);

struct OwnState {
  std::vector<torch::Tensor> more;  // OwnParts::more as it was saved
  std::string input;
};

// Sets the random states, buffers and gradients to what save_own() of the same parts has returned, and returns the
// rest. DataLoss: the bytes are damaged. InvalidArgument: they belong to other parts.
OwnState restore_own(const StrategyCore& core, const OwnParts& parts, const std::string& bytes);

// Returns what the replicas are laid out on where several of them take one share of the batch; else nothing.
std::string mesh_of(const StrategyCore& core);

// Returns the name of the entry in the bytes of a checkpoint that has a worker's own state.
std::string own_name(int rank);

// Returns this worker's own state, from its shards or from the chief's checkpoint. Collective.
std::string own_from_chief(const StrategyCore& core, const CheckpointData& data);

// Returns the own states of all workers on the chief, by the names of their entries; nothing on the others. Collective.
std::map<std::string, std::string> gather_own(const StrategyCore& core, const std::string& bytes);

}  // namespace cohort
