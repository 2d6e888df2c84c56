// Divides the parameters of a module as a layout says.

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <set>

#include "base/extension.h"
#include "base/fail.h"
#include "strategy/divides_positions.h"
#include "strategy/module_tensors.h"
#include "strategy/packed_parameters.h"
#include "strategy/parameter_layout.h"
#include "wings/mesh/strategy/mesh_plan.h"
#include "wings/mesh/strategy/module_form.h"

namespace cohort {

namespace {

std::string text_of(const ParameterAxes& axes) {
  std::vector<std::string> quoted;
  for (const std::string& axis : axes) quoted.push_back("\"" + axis + "\"");
  return "{" + c10::Join(", ", quoted) + "}";
}

// Returns the sizes of an axis that divide so many elements.
std::string sizes_that_fit(int64_t elements) {
  constexpr int64_t kMost = 64;
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= std::min(elements, kMost); ++size) {
    if (elements % size == 0) sizes.push_back(size);
  }
  return c10::Join(", ", sizes);
}

std::vector<std::string> names_of(const ModuleTensor& parameter) {
  std::vector<std::string> names = {parameter.name};
  names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
  return names;
}

// Returns how many parameters one is.
int64_t runs_of(const std::string& parameter, const torch::nn::Module& module) {
  const std::size_t dot = parameter.rfind('.');
  const bool own = dot == std::string::npos;
  const auto modules = module.named_modules("", /*include_self=*/false);
  const torch::nn::Module& owner = own ? module : *modules[parameter.substr(0, dot)];
  const auto* packed = dynamic_cast<const PackedParameters*>(&owner);
  if (packed == nullptr) return 1;
  const auto found = packed->runs.find(own ? parameter : parameter.substr(dot + 1));
  return found == packed->runs.end() ? 1 : found->second;
}

// Returns the form of a module of the library; null: it has none.
const ModuleForm* form_of(const torch::nn::Module& module) {
  for (const ModuleForm& form : extensions<ModuleForm>()) {
    if (form.fits(module)) return &form;
  }
  return nullptr;
}

bool takes_parts(const torch::nn::Module& module) {
  return dynamic_cast<const DividedModule*>(&module) != nullptr || form_of(module) != nullptr;
}

void divide(torch::nn::Module& module, const ModuleCuts& cuts, const Topology& topology) {
  if (auto* own = dynamic_cast<DividedModule*>(&module)) return own->divide(cuts, topology);
  form_of(module)->divide(module, cuts, topology);
}

// Returns whether some line along an axis has replicas of several processes. All processes come to the same.
bool crosses_processes(const Topology& topology, const std::string& axis) {
  for (int replica = 0; replica < topology.size(); ++replica) {
    for (const int other : topology.line(axis, replica)) {
      if (topology.place(other).process != topology.place(replica).process) return true;
    }
  }
  return false;
}

// Returns how a parameter is cut, which is `runs` parameters; nothing if it is not.
std::optional<ParameterCut> cut_of(const Topology& topology, const ModuleTensor& parameter, const ParameterAxes& axes,
                                   int64_t runs) {
  const torch::Tensor& tensor = parameter.tensor;
  if (static_cast<int64_t>(axes.size()) != tensor.dim()) {
    fail<InvalidArgument>("[mesh] layout: ", parameter.name, " has the shape ", tensor.sizes(), ", but ", text_of(axes),
                          " has ", axes.size(), " axes, wanted one a dimension (\"\": not cut)");
  }
  const auto named = [](const std::string& axis) { return !axis.empty(); };
  if (std::count_if(axes.begin(), axes.end(), named) > 1) {
    fail<InvalidArgument>("[mesh] layout: ", parameter.name, " is to be cut along ", text_of(axes),
                          ", but a parameter can be cut along one axis only");
  }
  const auto cut = std::find_if(axes.begin(), axes.end(), named);
  if (cut == axes.end()) return std::nullopt;
  const int64_t dim = cut - axes.begin();
  const int parts = topology.axis(*cut).size;
  if (dim > 0) runs = 1;
  const int64_t size = tensor.size(dim) / runs;
  if (size % parts != 0) {
    fail<InvalidArgument>("[mesh] layout: dimension ", dim, " of ", parameter.name, " has ",
                          runs == 1 ? "" : c10::str(runs, " times "), size, " elements, which ", parts,
                          " replicas along \"", *cut,
                          "\" do not divide; sizes of the axis that would: ", sizes_that_fit(size));
  }
  return ParameterCut{
      .axis = *cut, .dim = dim, .parts = parts, .runs = runs, .crosses = crosses_processes(topology, *cut)};
}

using Cuts = std::map<std::string, ParameterCut>;

Cuts find_cuts(const Topology& topology, const LayoutMap& map, const torch::nn::Module& module) {
  Cuts cuts;
  std::set<std::size_t> used;
  const std::vector<ModuleTensor> parameters = distinct_parameters(module);
  for (const ModuleTensor& parameter : parameters) {
    std::optional<std::size_t> entry;
    for (const std::string& name : names_of(parameter)) {
      const std::optional<std::size_t> found = map.find(name);
      if (!found) continue;
      used.insert(*found);
      if (entry && map.entries()[*entry].second != map.entries()[*found].second) {
        fail<InvalidArgument>("[mesh] layout: ", parameter.name, " is also called ", name, ", for which there is ",
                              text_of(map.entries()[*found].second), ", and for the former ",
                              text_of(map.entries()[*entry].second), "; one parameter has one layout");
      }
      entry = found;
    }
    if (!entry) continue;
    const auto cut = cut_of(topology, parameter, map.entries()[*entry].second, runs_of(parameter.name, module));
    if (cut) cuts[parameter.name] = *cut;
  }
  for (std::size_t i = 0; i < map.entries().size(); ++i) {
    if (used.contains(i)) continue;
    std::vector<std::string> names;
    for (const ModuleTensor& parameter : parameters) names.push_back(parameter.name);
    fail<InvalidArgument>("[mesh] layout: \"", map.entries()[i].first, "\" matches no parameter of the module, only ",
                          c10::Join(", ", names), " are there");
  }
  return cuts;
}

// Each parameter belongs to the innermost module around it that computes with parts.
void tell_modules(const StrategyCore& core, const ParameterLayout& layout,
                  const std::shared_ptr<torch::nn::Module>& module) {
  std::map<std::string, std::shared_ptr<torch::nn::Module>> modules = {{"", module}};
  for (const auto& each : module->named_modules("", /*include_self=*/false)) modules[each.key()] = each.value();
  const auto outer = [](const std::string& path) {
    return path.substr(0, path.find('.') == std::string::npos ? 0 : path.rfind('.'));
  };
  std::map<torch::nn::Module*, ModuleCuts> told;
  for (const ModuleTensor& parameter : distinct_parameters(*module)) {
    const ParameterCut* cut = layout.find(parameter.name);
    if (cut == nullptr) continue;
    ParameterAxes axes(static_cast<std::size_t>(parameter.tensor.dim()));
    axes[static_cast<std::size_t>(cut->dim)] = cut->axis;
    for (const std::string& name : names_of(parameter)) {
      std::string path = outer(name);
      while (!takes_parts(*modules.at(path)) && !path.empty()) path = outer(path);
      torch::nn::Module& taker = *modules.at(path);
      if (!takes_parts(taker)) {
        fail<InvalidArgument>(
            "[mesh] layout: ", name, " is to be cut along \"", cut->axis, "\", but ", modules.at(outer(name))->name(),
            " computes with whole parameters only; modules that derive ",
            "from DividedModule, such as the layers Dense, Conv2D, DepthwiseConv2D, BatchNormalization, Embedding and ",
            "MultiHeadAttention, take parts");
      }
      told[&taker][path.empty() ? name : name.substr(path.size() + 1)] = axes;
    }
  }
  for (const auto& [taker, cuts] : told) divide(*taker, cuts, core.topology());
  for (const AfterDivision& after : extensions<AfterDivision>()) after.act(*module);
  const std::string& positions = core.plan().extras.of<MeshExtras>().positions_axis;
  if (positions.empty()) return;
  bool any = false;
  for (const auto& each : module->modules(/*include_self=*/true)) {
    auto* divider = dynamic_cast<DividesPositions*>(each.get());
    if (divider != nullptr) divider->divide_positions(positions);
    any = any || divider != nullptr;
  }
  if (any) return;
  fail<InvalidArgument>("[mesh] sequence_parallel: ", module->name(), " has no positions that it divides; decoder(), ",
                        "bert() and vision_transformer() have");
}

}  // namespace

std::shared_ptr<const ParameterLayout> divide_module(const std::shared_ptr<StrategyCore>& core,
                                                     const std::vector<std::shared_ptr<torch::nn::Module>>& copies) {
  auto layout = std::make_shared<ParameterLayout>(
      core, find_cuts(core->topology(), core->plan().extras.of<MeshExtras>().layout, *copies.front()));
  if (!layout->cuts_any()) return layout;
  const torch::NoGradGuard no_grad;
  for (std::size_t r = 0; r < copies.size(); ++r) {
    tell_modules(*core, *layout, copies[r]);
    for (const ModuleTensor& parameter : distinct_parameters(*copies[r])) {
      if (layout->find(parameter.name) == nullptr) continue;
      torch::Tensor own = parameter.tensor;
      own.set_data(layout->part(parameter.name, own.detach(), static_cast<int>(r)).clone());
    }
  }
  return layout;
}

}  // namespace cohort
