#include "strategy/parameter_layout.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <set>

#include "base/fail.h"

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

}  // namespace

ParameterLayout::ParameterLayout(const Topology& topology, const LayoutMap& map,
                                 const std::vector<std::shared_ptr<torch::nn::Module>>& copies)
    : topology_(topology) {
  find_cuts(map, *copies.front());
  if (!cuts_any()) return;
  const torch::NoGradGuard no_grad;
  for (std::size_t r = 0; r < copies.size(); ++r) {
    tell_modules(copies[r]);
    for (const ModuleTensor& parameter : distinct_parameters(*copies[r])) {
      if (find(parameter.name) == nullptr) continue;
      torch::Tensor own = parameter.tensor;
      own.set_data(part(parameter.name, own.detach(), static_cast<int>(r)).clone());
    }
  }
}

void ParameterLayout::find_cuts(const LayoutMap& map, const torch::nn::Module& module) {
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
    if (entry) add_cut(parameter, map.entries()[*entry].second);
  }
  for (std::size_t i = 0; i < map.entries().size(); ++i) {
    if (used.contains(i)) continue;
    std::vector<std::string> names;
    for (const ModuleTensor& parameter : parameters) names.push_back(parameter.name);
    fail<InvalidArgument>("[mesh] layout: \"", map.entries()[i].first, "\" matches no parameter of the module, only ",
                          c10::Join(", ", names), " are there");
  }
}

void ParameterLayout::add_cut(const ModuleTensor& parameter, const ParameterAxes& axes) {
  const torch::Tensor& tensor = parameter.tensor;
  if (static_cast<int64_t>(axes.size()) != tensor.dim()) {
    fail<InvalidArgument>("[mesh] layout: ", parameter.name, " has the shape ", tensor.sizes(), ", but ", text_of(axes),
                          " has ", axes.size(), " axes, wanted one a dimension (\"\": not cut)");
  }
  const auto named = [](const std::string& axis) { return !axis.empty(); };
  if (std::count_if(axes.begin(), axes.end(), named) > 1) {
    fail<Unimplemented>("[mesh] layout: ", parameter.name, " is to be cut along ", text_of(axes),
                        ", but a parameter can be cut along one axis only");
  }
  const auto cut = std::find_if(axes.begin(), axes.end(), named);
  if (cut == axes.end()) return;
  const int64_t dim = cut - axes.begin();
  const int parts = topology_.axis(*cut).size;
  if (tensor.size(dim) % parts != 0) {
    fail<InvalidArgument>("[mesh] layout: dimension ", dim, " of ", parameter.name, " has ", tensor.size(dim),
                          " elements, which ", parts, " replicas along \"", *cut,
                          "\" do not divide; sizes of the axis that would: ", sizes_that_fit(tensor.size(dim)));
  }
  cuts_[parameter.name] = {.axis = *cut, .dim = dim, .parts = parts};
}

// Each parameter belongs to the innermost module around it that computes with parts.
void ParameterLayout::tell_modules(const std::shared_ptr<torch::nn::Module>& module) const {
  std::map<std::string, std::shared_ptr<torch::nn::Module>> modules = {{"", module}};
  for (const auto& each : module->named_modules("", /*include_self=*/false)) modules[each.key()] = each.value();
  const auto outer = [](const std::string& path) {
    return path.substr(0, path.find('.') == std::string::npos ? 0 : path.rfind('.'));
  };
  std::map<DividedModule*, std::map<std::string, ParameterAxes>> told;
  for (const ModuleTensor& parameter : distinct_parameters(*module)) {
    const ParameterCut* cut = find(parameter.name);
    if (cut == nullptr) continue;
    ParameterAxes axes(static_cast<std::size_t>(parameter.tensor.dim()));
    axes[static_cast<std::size_t>(cut->dim)] = cut->axis;
    for (const std::string& name : names_of(parameter)) {
      std::string path = outer(name);
      auto* taker = dynamic_cast<DividedModule*>(modules.at(path).get());
      while (taker == nullptr && !path.empty()) {
        path = outer(path);
        taker = dynamic_cast<DividedModule*>(modules.at(path).get());
      }
      if (taker == nullptr) {
        fail<Unimplemented>(
            "[mesh] layout: ", name, " is to be cut along \"", cut->axis, "\", but ", modules.at(outer(name))->name(),
            " computes with whole parameters only; modules that derive ",
            "from DividedModule, such as the layers Dense, Embedding and MultiHeadAttention, take parts");
      }
      told[taker][path.empty() ? name : name.substr(path.size() + 1)] = axes;
    }
  }
  for (const auto& [taker, axes] : told) taker->divide(axes, topology_);
}

const ParameterCut* ParameterLayout::find(const std::string& parameter) const {
  const auto found = cuts_.find(parameter);
  return found == cuts_.end() ? nullptr : &found->second;
}

std::vector<int64_t> ParameterLayout::whole_sizes(const std::string& parameter, torch::IntArrayRef part) const {
  std::vector<int64_t> sizes = part.vec();
  if (const ParameterCut* cut = find(parameter)) sizes[static_cast<std::size_t>(cut->dim)] *= cut->parts;
  return sizes;
}

torch::Tensor ParameterLayout::part(const std::string& parameter, const torch::Tensor& whole, int replica) const {
  const ParameterCut* cut = find(parameter);
  if (cut == nullptr) return whole;
  const std::vector<int> line = topology_.line(cut->axis, replica);
  const int64_t size = whole.size(cut->dim) / cut->parts;
  return whole.narrow(cut->dim, (std::find(line.begin(), line.end(), replica) - line.begin()) * size, size);
}

torch::Tensor ParameterLayout::whole(const std::string& parameter,
                                     const std::function<torch::Tensor(int replica)>& part_of) const {
  const ParameterCut* cut = find(parameter);
  if (cut == nullptr) return part_of(0);
  std::vector<torch::Tensor> parts;
  for (const int replica : topology_.line(cut->axis, 0)) {
    parts.push_back(part_of(replica).to(parts.empty() ? part_of(0).device() : parts.front().device()));
  }
  return at::cat(parts, cut->dim);
}

}  // namespace cohort
