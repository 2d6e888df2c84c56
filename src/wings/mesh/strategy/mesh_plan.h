// The part of a plan that strategies on a mesh have in common.
#pragma once

#include <string>
#include <vector>

#include "cohort/device_mesh.h"
#include "cohort/parallel/mesh_strategy.h"
#include "strategy/strategies/devices.h"

namespace cohort {

// Returns a plan with the layout and the exchange of the options, over these devices of this process; its topology is
// not yet that of the mesh. Errors: see MeshStrategy.
StrategyPlan mesh_plan(const std::string& name, const DeviceMesh& mesh, const MeshOptions& options,
                       const std::vector<std::string>& devices);
// Says in a plan, whose topology is that of the mesh, how the inputs are divided along the mesh's axis for it, if it
// has one, and how positions attend to each other. Errors: see MeshStrategy.
void divide_inputs(StrategyPlan& plan, const DeviceMesh& mesh, const MeshOptions& options);

}  // namespace cohort
