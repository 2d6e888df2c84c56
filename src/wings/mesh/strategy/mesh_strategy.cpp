#include <set>

#include "base/fail.h"
#include "cohort/parallel/mesh_strategy.h"
#include "strategy/strategies/devices.h"
#include "wings/mesh/strategy/mesh_plan.h"

namespace cohort {

namespace {

constexpr std::string_view kSequence = "sequence";  // the axis along which tokens are cut unless something else is said

// The axes that the layout names divide parameters, and those that are to divide them are named by it.
void require_layout(const DeviceMesh& mesh, const LayoutMap& layout) {
  std::set<std::string, std::less<>> named;
  for (const auto& [pattern, axes] : layout.entries()) {
    for (const std::string& axis : axes) {
      if (axis.empty()) continue;
      if (mesh.topology().axis(axis).role != AxisRole::kModel) {
        fail<InvalidArgument>("[mesh] layout: \"", pattern, "\" is to be cut along \"", axis,
                              "\", which does not divide parameters (the role kModel) in the mesh ", mesh.to_string());
      }
      named.insert(axis);
    }
  }
  for (const Axis& axis : mesh.axes()) {
    if (axis.role == AxisRole::kModel && !named.contains(axis.name)) {
      fail<InvalidArgument>("[mesh] the layout cuts no parameter along \"", axis.name, "\" of the mesh ",
                            mesh.to_string(), ", so that its replicas would all do the same");
    }
  }
}

// Returns the axis along which positions are divided between products that are.
std::string only_model_axis(const DeviceMesh& mesh) {
  std::vector<std::string> names;
  for (const Axis& axis : mesh.axes()) {
    if (axis.role == AxisRole::kModel) names.push_back(axis.name);
  }
  if (names.size() == 1) return names[0];
  fail<InvalidArgument>("[mesh] sequence_parallel came with ", names.size(),
                        " axes that divide parameters in the mesh ", mesh.to_string(),
                        ", wanted one, along which the layout cuts");
}

// Says in a plan how the inputs are divided along the mesh's axis for it, if it has one, and how positions attend to
// each other.
void divide_inputs(StrategyPlan& plan, const DeviceMesh& mesh, const MeshOptions& options) {
  std::vector<std::string> space;
  for (const Axis& axis : mesh.axes()) {
    if (axis.role == AxisRole::kSpace) space.push_back(axis.name);
  }
  const bool wanted = !options.input_partition_dims.empty() || !options.eval_input_partition_dims.empty();
  if (space.empty() && wanted) {
    fail<InvalidArgument>("[mesh] input_partition_dims came, but no axis of the mesh ", mesh.to_string(),
                          " divides inputs (the role kSpace, such as \"space\")");
  }
  if (space.empty() && options.attention != SequenceAttention::kRing) {
    fail<InvalidArgument>("[mesh] attention is SequenceAttention::kUlysses, but no axis of the mesh ", mesh.to_string(),
                          " divides inputs (the role kSpace, such as \"sequence\")");
  }
  if (space.empty()) return;
  if (space.size() > 1) {
    fail<InvalidArgument>("[mesh] the axes \"", space[0], "\" and \"", space[1], "\" of the mesh ", mesh.to_string(),
                          " both divide inputs; one axis does, whose parts input_partition_dims lays out");
  }
  std::vector<int64_t> train = options.input_partition_dims;
  if (!wanted && space[0] == kSequence) train = {1, mesh.topology().axis(space[0]).size};
  plan.extras.get<MeshExtras>().attention = options.attention;
  divide_inputs_along(plan, "mesh", space[0], train, options.eval_input_partition_dims);
}

}  // namespace

void divide_model(StrategyPlan& plan, const DeviceMesh& mesh, const LayoutMap& layout) {
  require_layout(mesh, layout);
  require_lines("[mesh]", plan.devices);
  plan.extras.get<MeshExtras>().layout = layout;
  plan.divide = divide_module;
}

StrategyPreset mesh_preset(const std::string& name, const DeviceMesh& mesh, const MeshOptions& options) {
  return {.name = name,
          .mesh = mesh,
          .divides = {AxisRole::kModel, AxisRole::kSpace},
          .exchange = options.exchange,
          .sharding = options.sharding};
}

StrategyPlan mesh_plan(const StrategyPreset& preset, const MeshOptions& options) {
  StrategyPlan plan = build_plan(preset);
  divide_model(plan, *preset.mesh, options.layout);
  if (options.sequence_parallel) plan.extras.get<MeshExtras>().positions_axis = only_model_axis(*preset.mesh);
  divide_inputs(plan, *preset.mesh, options);
  return plan;
}

MeshStrategy::MeshStrategy(const DeviceMesh& mesh, const MeshOptions& options)
    : Strategy(std::make_shared<StrategyCore>(mesh_plan(mesh_preset("mesh", mesh, options), options))) {}

}  // namespace cohort
