// Parameters and a pipeline over several processes. Before the first update every process has all parameters. Then each
// keeps those that its stages have used in the first step, with their slots; those that nobody has used stay with all.
#include "wings/pipeline/step/stages_of_step.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/access.h"
#include "base/fail.h"
#include "base/libtorch_compat.h"
#include "cohort/strategy.h"
#include "device/identity.h"
#include "step/step.h"
#include "strategy/absent.h"
#include "strategy/core.h"
#include "strategy/holders.h"
#include "strategy/module_tensors.h"

namespace cohort {

namespace {

// Returns the places on the line of stages of these workers.
std::set<int> places_of(const StrategyCore& core, const std::vector<int>& workers) {
  std::set<int> places;
  for (const int worker : workers) places.insert(stage_place_of(core.topology(), worker));
  return places;
}

// Calls fn with the name and the tensor of each parameter and buffer of a module.
template <typename Fn>
void each_tensor(const torch::nn::Module& module, const Fn& fn) {
  for (const auto& list : {distinct_parameters, distinct_buffers}) {
    for (ModuleTensor& each : list(module)) fn(each.name, each.tensor);
  }
}

// Fails if several chunks change a tensor of the module, in this process or in others: a chunk comes to a microbatch
// before another one has come to the microbatch before. A collective of all workers, which all fail alike.
void require_one_chunk(const MirroredModule& module, const std::vector<const TensorsUsed*>& used) {
  const StrategyCore& core = *Access::core(module);
  NamedTensors changed;
  std::string of_several;
  for (std::size_t r = 0; r < used.size(); ++r) {
    each_tensor(*module.copies()[r], [&](const std::string& name, const torch::Tensor& tensor) {
      const auto found = used[r]->changed.find(tensor_id(tensor));
      if (found == used[r]->changed.end()) return;
      changed.emplace_back(name, tensor);
      if (found->second.size() > 1) of_several = name;
    });
  }
  if (has_stages(core)) {
    for (const std::string& name : core.gather_texts(of_several)) of_several = of_several.empty() ? name : of_several;
    for (const Held& held : held_by_workers(core, changed)) {
      if (places_of(core, held.workers).size() > 1) of_several = held.name;
    }
  }
  if (of_several.empty()) return;
  fail<FailedPrecondition>("[pipeline] ", of_several,
                           " is changed in several chunks of the model, which do not come to ",
                           "a microbatch one after the other; call its module in one chunk, or have a module for each");
}

}  // namespace

void Step::find_stages() {
  const StrategyCore& core = *Access::core(module_);
  if (!has_stages(core)) {
    stages_.placed = !core.plan().in_microbatches;
    return;
  }
  NamedTensors own;
  std::map<std::string, std::size_t> numbers;
  for (std::size_t p = 0; p < flat_->parameters().size(); ++p) {
    numbers[flat_->parameters()[p].name] = p;
    own.emplace_back(flat_->parameters()[p].name, flat_->tensors(0)[p]);
  }
  const std::vector<Held> all = held_by_workers(core, own);
  const int place = stage_place_of(core.topology(), core.worker_rank());
  const bool everywhere = std::all_of(all.begin(), all.end(), [&](const Held& held) {
    return static_cast<int>(held.workers.size()) == core.num_workers();
  });
  // Variables are read one by one, so that every process keeps all of them.
  const bool stays = dynamic_cast<const KeptWhole*>(module_.copies().front().get()) != nullptr;
  stages_.placed = stays || !everywhere || !stages_.kept.empty();
  stages_.shared.clear();
  std::vector<bool> counted(flat_->parameters().size(), true);
  for (const Held& held : all) {
    const std::set<int> places = places_of(core, held.workers);
    const auto found = numbers.find(held.name);
    const bool is_here = found != numbers.end();
    if (is_here) counted[found->second] = *places.begin() == place;
    if (places.size() == 1) continue;
    stages_.shared.push_back(
        {.parameter = is_here ? std::optional(found->second) : std::nullopt, .dtype = held.dtype, .sizes = held.sizes});
  }
  if (!everywhere) flat_->set_counted(std::move(counted));
}

void Step::place(const std::vector<const TensorsUsed*>& used) {
  const StrategyCore& core = *Access::core(module_);
  require_one_chunk(module_, used);
  if (!has_stages(core)) {
    stages_.placed = true;
    return;
  }
  NamedTensors own;  // those that the stages of this process have used
  for (std::size_t r = 0; r < used.size(); ++r) {
    each_tensor(*module_.copies()[r], [&](const std::string& name, const torch::Tensor& tensor) {
      if (used[r]->all.contains(tensor_id(tensor))) own.emplace_back(name, tensor);
    });
  }
  const int place = stage_place_of(core.topology(), core.worker_rank());
  std::set<std::string> elsewhere;
  for (const Held& held : held_by_workers(core, own)) {
    if (!places_of(core, held.workers).contains(place)) elsewhere.insert(held.name);
  }
  stages_.kept.clear();
  for (std::size_t p = 0; p < flat_->parameters().size(); ++p) {
    if (!elsewhere.contains(flat_->parameters()[p].name)) stages_.kept.push_back(p);
  }
  if (stages_.kept.empty()) {
    fail<FailedPrecondition>("[pipeline] the stages of worker ", core.worker_rank(), " have used no parameter that ",
                             "requires a gradient in the first step; cut the model so that every process has some");
  }
  const std::unique_ptr<FlatParameters> flat_before = std::move(flat_);
  const std::unique_ptr<Exchange> exchange_before = std::move(exchange_);
  const std::unique_ptr<OptimizerState> state_before = std::move(state_);
  for (const auto& copy : module_.copies()) {
    each_tensor(*copy, [&](const std::string& name, torch::Tensor& tensor) {
      if (elsewhere.contains(name)) make_absent(tensor);
    });
  }
  build();
  state_->go_on_from(*state_before, *exchange_before, *flat_before, stages_.kept);
}

std::vector<torch::Tensor> Step::over_stages(const Replica& replica, std::vector<torch::Tensor> sums) const {
  const StrategyCore& core = *Access::core(module_);
  const Axis* axis = stage_axis(core.topology());
  if (axis == nullptr) return sums;
  if (sums.size() != names_.size()) {
    std::vector<torch::Tensor> own;
    for (const std::size_t p : stages_.kept) own.push_back(std::move(sums[p]));
    sums = std::move(own);
  }
  if (stages_.shared.empty()) return sums;
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> added;
  for (const StagesOfStep::Shared& each : stages_.shared) {
    if (each.parameter && compat::has_hooks(flat_->tensors(replica.local_id())[*each.parameter])) {
      fail<Unimplemented>("[pipeline] ", flat_->parameters()[*each.parameter].name,
                          " has hooks (register_hook) and is ",
                          "used by stages of several processes: they would see the gradient of this process's, wanted ",
                          "hooks of parameters of one process");
    }
    const torch::Tensor sum = each.parameter ? sums[*each.parameter] : torch::Tensor();
    added.push_back(sum.defined() ? (sum.is_sparse() ? sum.to_dense() : sum).contiguous()
                                  : at::zeros(each.sizes, torch::dtype(each.dtype).device(replica.device())));
  }
  core.group(axis->name, replica.local_id()).all_reduce(added, ReduceOp::kSum);
  for (std::size_t i = 0; i < added.size(); ++i) {
    if (stages_.shared[i].parameter) sums[*stages_.shared[i].parameter] = added[i];
  }
  return sums;
}

}  // namespace cohort
