#include "strategy/holders.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/fail.h"
#include "strategy/absent.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

std::string text_of(const NamedTensors& own) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [name, tensor] : own) {
    if (is_absent(tensor)) continue;
    list.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()});
  }
  return list.dump();
}

// Returns what the workers have told, in the order of the first worker that has each.
std::vector<Held> merged(const std::vector<std::string>& texts) {
  std::vector<Held> all;
  std::map<std::string, std::size_t> places;
  try {
    for (std::size_t worker = 0; worker < texts.size(); ++worker) {
      for (const auto& item : nlohmann::json::parse(texts[worker])) {
        const auto [place, is_new] = places.emplace(item.at(0).get<std::string>(), all.size());
        if (is_new) {
          all.push_back({.name = place->first,
                         .dtype = static_cast<torch::ScalarType>(item.at(1).get<int>()),
                         .sizes = item.at(2).get<std::vector<int64_t>>(),
                         .workers = {}});
        }
        all[place->second].workers.push_back(static_cast<int>(worker));
      }
    }
  } catch (const nlohmann::json::exception& error) {
    fail<DataLoss>("[pipeline] a worker told of its tensors what cannot be read: ", error.what());
  }
  return all;
}

}  // namespace

const Axis* stage_axis(const Topology& topology) {
  const auto& axes = topology.axes();
  const auto found = std::find_if(axes.begin(), axes.end(),
                                  [](const Axis& each) { return each.role == AxisRole::kStage && each.size > 1; });
  return found == axes.end() ? nullptr : &*found;
}

int stage_place_of(const Topology& topology, int process) {
  const Axis* axis = stage_axis(topology);
  if (axis == nullptr) return 0;
  const Coordinate at = topology.coordinate(topology.replicas_of(process).front());
  return at[static_cast<std::size_t>(axis - topology.axes().data())];
}

std::vector<Held> held_by_workers(const StrategyCore& core, const NamedTensors& own) {
  return merged(core.gather_texts(text_of(own)));
}

bool all_have_all(const StrategyCore& core, const NamedTensors& own) {
  const std::vector<Held> all = held_by_workers(core, own);
  return std::all_of(all.begin(), all.end(),
                     [&](const Held& held) { return static_cast<int>(held.workers.size()) == core.num_workers(); });
}

NamedTensors from_holders(const StrategyCore& core, const NamedTensors& own, bool of_first) {
  const torch::NoGradGuard no_grad;
  const std::map<std::string, torch::Tensor> here(own.begin(), own.end());
  NamedTensors list;
  std::map<int, std::vector<torch::Tensor>> messages;  // by the worker that sends them
  for (const Held& held : held_by_workers(core, own)) {
    const auto found = here.find(held.name);
    if (!of_first && static_cast<int>(held.workers.size()) == core.num_workers()) {
      list.emplace_back(held.name, found->second.detach());
      continue;
    }
    const bool gives = held.workers.front() == core.worker_rank();
    list.emplace_back(held.name, gives ? found->second.detach().cpu().contiguous() : at::empty(held.sizes, held.dtype));
    messages[held.workers.front()].push_back(list.back().second);
  }
  for (auto& [worker, tensors] : messages) core.workers().world().broadcast(tensors, worker);
  return list;
}

bool leads_stages(const StrategyCore& core) {
  const int own = stage_place_of(core.topology(), core.worker_rank());
  for (int worker = 0; worker < core.worker_rank(); ++worker) {
    if (stage_place_of(core.topology(), worker) == own) return false;
  }
  return true;
}

}  // namespace cohort
