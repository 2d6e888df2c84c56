// The part of a plan that strategies on a mesh have in common.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/device_mesh.h"
#include "cohort/parallel/mesh_strategy.h"
#include "strategy/strategies/preset.h"

namespace cohort {

// The extras of a plan on a mesh.
struct MeshExtras {
  LayoutMap layout = {};            // the parameters of which the replicas have parts
  std::string positions_axis = {};  // along which models divide positions between them; empty: none
  SequenceAttention attention = SequenceAttention::kRing;  // how replicas with positions attend to each other's
};

// Divides a module as the extras of the plan say (DivideModule). Errors: see MeshOptions::layout and DividedModule.
std::shared_ptr<const ParameterLayout> divide_module(const std::shared_ptr<StrategyCore>& core,
                                                     const std::vector<std::shared_ptr<torch::nn::Module>>& copies);

// Returns the preset of a strategy on a mesh, and the plan of such a preset. Errors: see MeshStrategy.
StrategyPreset mesh_preset(const std::string& name, const DeviceMesh& mesh, const MeshOptions& options);
StrategyPlan mesh_plan(const StrategyPreset& preset, const MeshOptions& options);

// Says in a plan how replicas have parts of parameters (ModelDivider).
void divide_model(StrategyPlan& plan, const DeviceMesh& mesh, const LayoutMap& layout);

// Says how the inputs are divided among the replicas along a plan's axis (InputDivider). InvalidArgument: the parts are
// not as many as these replicas, or examples or channels would be cut.
void divide_inputs_along(StrategyPlan& plan, std::string_view speaker, const std::string& axis,
                         const std::vector<int64_t>& train_dims, const std::vector<int64_t>& eval_dims);

}  // namespace cohort
