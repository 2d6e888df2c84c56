// Parameters and a pipeline over several processes. Before the first update every process has all parameters. Then each
// keeps those that its stages have used in the first step, with their slots; those that nobody has used stay with all.
#include "wings/pipeline/step/pipeline_step.h"

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
#include "wings/pipeline/strategy/chunk_backward.h"

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

void PipelineStep::laid_out(Step& step) {
  const StrategyCore& core = *Access::core(module(step));
  FlatParameters& parameters = flat(step);
  if (!has_stages(core)) {
    placed_ = false;
    return;
  }
  NamedTensors own;
  std::map<std::string, std::size_t> numbers;
  for (std::size_t p = 0; p < parameters.parameters().size(); ++p) {
    numbers[parameters.parameters()[p].name] = p;
    own.emplace_back(parameters.parameters()[p].name, parameters.tensors(0)[p]);
  }
  const std::vector<Held> all = held_by_workers(core, own);
  const int place = stage_place_of(core.topology(), core.worker_rank());
  const bool everywhere = std::all_of(all.begin(), all.end(), [&](const Held& held) {
    return static_cast<int>(held.workers.size()) == core.num_workers();
  });
  // Variables are read one by one, so that every process keeps all of them.
  const bool stays = dynamic_cast<const KeptWhole*>(module(step).copies().front().get()) != nullptr;
  placed_ = stays || !everywhere || !kept_.empty();
  shared_.clear();
  std::vector<bool> counted(parameters.parameters().size(), true);
  for (const Held& held : all) {
    const std::set<int> places = places_of(core, held.workers);
    const auto found = numbers.find(held.name);
    const bool is_here = found != numbers.end();
    if (is_here) counted[found->second] = *places.begin() == place;
    if (places.size() == 1) continue;
    shared_.push_back(
        {.parameter = is_here ? std::optional(found->second) : std::nullopt, .dtype = held.dtype, .sizes = held.sizes});
  }
  if (!everywhere) parameters.set_counted(std::move(counted));
}

void PipelineStep::place(Step& step, const std::vector<const TensorsUsed*>& used) {
  const MirroredModule& module = StepInParts::module(step);
  const StrategyCore& core = *Access::core(module);
  const std::vector<FlatParameter>& parameters = flat(step).parameters();
  require_one_chunk(module, used);
  if (!has_stages(core)) {
    placed_ = true;
    return;
  }
  NamedTensors own;  // those that the stages of this process have used
  for (std::size_t r = 0; r < used.size(); ++r) {
    each_tensor(*module.copies()[r], [&](const std::string& name, const torch::Tensor& tensor) {
      if (used[r]->all.contains(tensor_id(tensor))) own.emplace_back(name, tensor);
    });
  }
  const int place = stage_place_of(core.topology(), core.worker_rank());
  std::set<std::string> elsewhere;
  for (const Held& held : held_by_workers(core, own)) {
    if (!places_of(core, held.workers).contains(place)) elsewhere.insert(held.name);
  }
  kept_.clear();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (!elsewhere.contains(parameters[p].name)) kept_.push_back(p);
  }
  if (kept_.empty()) {
    fail<FailedPrecondition>("[pipeline] the stages of worker ", core.worker_rank(), " have used no parameter that ",
                             "requires a gradient in the first step; cut the model so that every process has some");
  }
  const auto make_others_absent = [&] {
    for (const auto& copy : module.copies()) {
      each_tensor(*copy, [&](const std::string& name, torch::Tensor& tensor) {
        if (elsewhere.contains(name)) make_absent(tensor);
      });
    }
  };
  leave(step, make_others_absent, kept_);
}

std::vector<torch::Tensor> PipelineStep::over_stages(const Step& step, const Replica& replica,
                                                     std::vector<torch::Tensor> sums) const {
  const StrategyCore& core = *Access::core(module(step));
  FlatParameters& parameters = flat(step);
  const Axis* axis = stage_axis(core.topology());
  if (axis == nullptr) return sums;
  if (sums.size() != step.parameter_names().size()) {
    std::vector<torch::Tensor> own;
    for (const std::size_t p : kept_) own.push_back(std::move(sums[p]));
    sums = std::move(own);
  }
  if (shared_.empty()) return sums;
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> added;
  for (const Shared& each : shared_) {
    if (each.parameter && compat::has_hooks(parameters.tensors(replica.local_id())[*each.parameter])) {
      refuse_hooks(parameters.parameters()[*each.parameter].name, "by stages of several processes");
    }
    const torch::Tensor sum = each.parameter ? sums[*each.parameter] : torch::Tensor();
    added.push_back(sum.defined() ? (sum.is_sparse() ? sum.to_dense() : sum).contiguous()
                                  : at::zeros(each.sizes, torch::dtype(each.dtype).device(replica.device())));
  }
  core.group(axis->name, replica.local_id()).all_reduce(added, ReduceOp::kSum);
  for (std::size_t i = 0; i < added.size(); ++i) {
    if (shared_[i].parameter) sums[*shared_[i].parameter] = added[i];
  }
  return sums;
}

void PipelineStep::update(Step& step, Replica& replica, std::vector<torch::Tensor> sums) const {
  for (const torch::Tensor& other : flat(step).take_gradients(replica.local_id())) {
    if (!other.defined()) continue;
    fail<Unimplemented>("[optimizer] minimize: a parameter has a gradient of another backward(), which a pipeline ",
                        "does not add; make it a part of the loss");
  }
  join(step, replica);
  sums = over_stages(step, replica, std::move(sums));
  flat(step).note_reached(replica.local_id(), sums);
  StepInParts::update(step, replica, {.gradients = std::move(sums), .scaled = true});
}

void PipelineStep::minimize(Step& step, ReplicaScope& scope, const Replica& replica, const torch::Tensor& loss) {
  const std::shared_ptr<Step> kept = step.shared_from_this();  // and with it this
  LaterStep later{
      .owner = &step,
      .loss = scaled(step, replica, loss),
      .parameters = flat(step).tensors(replica.local_id()),
      .update = [this, kept](Replica& own, std::vector<torch::Tensor> sums) { update(*kept, own, std::move(sums)); }};
  if (!placed_) later.place = [this, kept](const std::vector<const TensorsUsed*>& used) { place(*kept, used); };
  scope.minimize(std::move(later));
}

}  // namespace cohort
