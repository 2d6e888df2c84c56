// The flags of the mesh that replicas are laid out on.
#pragma once

#include <string>
#include <vector>

#include "cohort/models/experiment.h"

namespace cohort {

// The axes that --mesh names.
struct MeshFlag {
  std::vector<int> sizes;
  std::vector<std::string> names;
};
// InvalidArgument: the flag is no list such as batch=2,model=2.
MeshFlag mesh_of(const StrategyFlags& flags);

// Sets the layout of the task where the mesh divides parameters, and where its model is cut if it divides layers.
// Unimplemented: the task has none.
void take_layout(StrategyFlags& flags, const Task& task);

// Returns the number of parts of an input, each of which has a device.
int parts_of(const StrategyFlags& flags);

// Returns the strategy on the mesh; `devices` are those that --num_replicas and --num_gpus ask for.
Strategy make_mesh(const StrategyFlags& flags, const std::vector<std::string>& devices,
                   const ExchangeOptions& exchange);
// The same over the workers of the environment's cluster, each of which has these devices.
Strategy make_mesh_of_workers(const StrategyFlags& flags, const std::vector<std::string>& devices,
                              const ExchangeOptions& exchange);

// InvalidArgument: --sequence_attention is unknown, or set without an axis of sequences; --sequence_parallel,
// --vocab_parallel or --mlp_parallel is set without an axis that divides parameters; an axis is to divide images, and
// the task does not say how.
void check_mesh(const StrategyFlags& flags);

// Adds the flags.
void describe_mesh(StrategyFlags& flags, ConfigFields& fields);

}  // namespace cohort
