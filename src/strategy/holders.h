// Finds the workers that hold a tensor, if the stages of a model lie in several processes.
//
// In the topology of such a pipeline a replica is a run of stages that one process has of a line, and the axis of the
// role kStage has one for each process of the line. A pipeline of one process has no such axis: its replicas are whole
// lines.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/example.h"
#include "cohort/topology.h"
#include "strategy/core.h"

namespace cohort {

// Returns the axis along which the stages lie with several processes; null: there is none.
const Axis* stage_axis(const Topology& topology);
inline bool has_stages(const StrategyCore& core) {
  return stage_axis(core.topology()) != nullptr;
}

// Returns the place of a process's replicas along that axis; 0 if there is none. All of them have the same.
int stage_place_of(const Topology& topology, int process);

// A tensor that some workers have.
struct Held {
  std::string name;
  torch::ScalarType dtype = torch::kFloat;
  std::vector<int64_t> sizes;
  std::vector<int> workers;  // that have it, ascending
};

// Returns the tensors that the workers have, in the order of the first worker of each; absent ones are not had. A
// collective of all workers, in cross-replica context.
std::vector<Held> held_by_workers(const StrategyCore& core, const NamedTensors& own);

// Returns whether every worker has all of them. A collective likewise.
bool all_have_all(const StrategyCore& core, const NamedTensors& own);

// Returns the values of all these tensors, on every worker: those of the first worker that has each. Tensors that every
// worker has are its own unless `of_first`; the others are in the host's memory. A collective likewise.
NamedTensors from_holders(const StrategyCore& core, const NamedTensors& own, bool of_first = false);

// Returns whether this worker is the first one of those with the same stages.
bool leads_stages(const StrategyCore& core);

}  // namespace cohort
