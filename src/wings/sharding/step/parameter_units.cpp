#include "wings/sharding/step/parameter_units.h"

#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <string>
#include <typeinfo>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "cohort/mirrored.h"
#include "device/identity.h"

namespace cohort {

namespace {

using UnitTensors = std::vector<torch::Tensor>;

// A container has children and no forward of its own: they are its layers or blocks.
bool is_container(const torch::nn::Module& module) {
  return typeid(module) == typeid(torch::nn::Module) || typeid(module) == typeid(torch::nn::SequentialImpl) ||
         typeid(module) == typeid(torch::nn::ModuleListImpl) || typeid(module) == typeid(torch::nn::ModuleDictImpl);
}

class Units {
 public:
  void walk(const torch::nn::Module& module, bool inside_container) {
    if (const auto* names = dynamic_cast<const ShardingUnits*>(&module)) return walk_named(module, *names);
    const bool container = is_container(module);
    if (!container && (inside_container || module.children().empty())) return add(module, /*recurse=*/true);
    add(module, /*recurse=*/false);
    // What has a single layer with parameters is put around a model, and that model has the layers.
    const std::vector<std::shared_ptr<torch::nn::Module>> children = module.children();
    const auto learns = [](const auto& child) { return !child->parameters().empty(); };
    const bool has_layers = container && std::count_if(children.begin(), children.end(), learns) > 1;
    for (const auto& child : children) walk(*child, has_layers);
  }

  std::vector<UnitTensors>& list() { return list_; }

 private:
  void walk_named(const torch::nn::Module& module, const ShardingUnits& names) {
    const std::vector<std::string> units = names.sharding_units();
    const auto children = module.named_children();
    for (const std::string& name : units) {
      if (children.contains(name)) continue;
      std::vector<std::string> known;
      for (const auto& child : children) known.push_back(child.key());
      fail<NotFound>("[sharding] ", module.name(), " names the unit \"", name, "\", but its children are {",
                     c10::Join(", ", known), "}");
    }
    add(module, /*recurse=*/false);
    for (const auto& child : children) {
      const bool named = std::find(units.begin(), units.end(), child.key()) != units.end();
      named ? add(*child.value(), /*recurse=*/true) : walk(*child.value(), /*inside_container=*/false);
    }
  }

  // Makes the module's parameters that no unit has a unit.
  void add(const torch::nn::Module& module, bool recurse) {
    UnitTensors unit;
    for (const torch::Tensor& parameter : module.parameters(recurse)) {
      if (parameter.requires_grad() && seen_.insert(tensor_id(parameter)).second) unit.push_back(parameter);
    }
    if (!unit.empty()) list_.push_back(std::move(unit));
  }

  std::vector<UnitTensors> list_;
  std::unordered_set<const void*> seen_;
};

int64_t bytes_in(const UnitTensors& unit) {
  int64_t bytes = 0;
  for (const torch::Tensor& parameter : unit)
    bytes += parameter.numel() * static_cast<int64_t>(parameter.element_size());
  return bytes;
}

// Puts neighbours together until each has so many bytes; what is left at the end goes to the last one.
std::vector<UnitTensors> merged(const std::vector<UnitTensors>& units, int64_t min_bytes) {
  std::vector<UnitTensors> list;
  for (const UnitTensors& unit : units) {
    const bool fits = list.empty() || bytes_in(list.back()) >= min_bytes;
    if (fits) {
      list.push_back(unit);
    } else {
      list.back().insert(list.back().end(), unit.begin(), unit.end());
    }
  }
  if (list.size() > 1 && bytes_in(list.back()) < min_bytes) {
    UnitTensors& before = list[list.size() - 2];
    before.insert(before.end(), list.back().begin(), list.back().end());
    list.pop_back();
  }
  return list;
}

}  // namespace

std::unordered_map<const void*, std::size_t> parameter_units(const torch::nn::Module& root, int64_t min_bytes) {
  Units units;
  units.walk(root, /*inside_container=*/false);
  std::unordered_map<const void*, std::size_t> unit_of;
  const std::vector<UnitTensors> list = merged(units.list(), min_bytes);
  for (std::size_t u = 0; u < list.size(); ++u) {
    for (const torch::Tensor& parameter : list[u]) unit_of.emplace(tensor_id(parameter), u);
  }
  return unit_of;
}

}  // namespace cohort
