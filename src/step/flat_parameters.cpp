#include "step/flat_parameters.h"

#include <ATen/Functions.h>

#include <set>

#include "base/access.h"
#include "base/extension.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/slices.h"
#include "device/host_memory.h"
#include "device/identity.h"
#include "ops/line_backward.h"
#include "step/parameter_sharing.h"
#include "strategy/absent.h"
#include "strategy/module_tensors.h"
#include "strategy/placement.h"
#include "strategy/row_table.h"

namespace cohort {

namespace {

constexpr int kFirstLosses = 10;

// Returns how the rule treats a parameter. One with several names is excluded by any of them.
Treatment treatment_of(const Optimizer& rule, const std::string& name, const std::vector<std::string>& aliases,
                       int64_t rank) {
  Treatment treatment{.decay = rule.decays(name, rank), .adapt = rule.adapts(name, rank)};
  for (const std::string& alias : aliases) {
    treatment.decay = treatment.decay && rule.decays(alias, rank);
    treatment.adapt = treatment.adapt && rule.adapts(alias, rank);
  }
  return treatment;
}

// Another optimizer has shared the module's parameters, perhaps others of them: each replica gets all of them back.
void make_whole(const MirroredModule& module) {
  const torch::NoGradGuard no_grad;
  SharedParameters::Wholes wholes;
  for (const ModuleTensor& parameter : distinct_parameters(*module.copies().front())) {
    if (SharedParameters::of(parameter.tensor) == nullptr) continue;
    for (const auto& copy : module.copies()) {
      torch::Tensor own = copy->named_parameters()[parameter.name];
      const torch::Tensor whole = SharedParameters::whole(own, wholes);
      const torch::Tensor memory = torch::empty_strided(own.sizes(), own.strides(), own.options().requires_grad(false));
      own.set_data(memory.copy_(whole));
      own.mutable_grad().reset();
    }
  }
}

}  // namespace

FlatParameters::FlatParameters(const MirroredModule& module, const Optimizer& rule)
    : optimizers_(Access::core(module)->optimizers()), layout_(Access::layout(module)) {
  make_whole(module);
  collect(module, rule);
  const StrategyCore& core = *Access::core(module);
  if (core.joins()) {
    keep_apart();
  } else if (core.shares_parameters() && dynamic_cast<KeptWhole*>(module.copies().front().get()) == nullptr) {
    share(module, rule);
  } else {
    lay_out(module);
  }
  note_homes();
  // Tables on parameter servers have gradients by rows.
  const bool elsewhere = dynamic_cast<const ServersPlacement*>(&core.placement()) != nullptr;
  unnoted_ = elsewhere ? 0 : kFirstLosses;
  reached_.resize(parameters_.size());
}

void FlatParameters::collect(const MirroredModule& module, const Optimizer& rule) {
  tensors_.resize(module.copies().size());
  for (std::size_t r = 0; r < tensors_.size(); ++r) {
    require_apart(*module.copies()[r]);
    for (const auto& [name, tensor, aliases] : distinct_parameters(*module.copies()[r])) {
      if (!tensor.requires_grad()) continue;
      if (r == 0) all_names_.push_back(name);
      if (is_absent(tensor)) continue;
      tensors_[r].push_back(tensor);
      if (r > 0) continue;
      const bool dense = tensor.is_non_overlapping_and_dense();
      parameters_.push_back({.name = name,
                             .shape = tensor.sizes().vec(),
                             .strides = (dense ? tensor : tensor.detach().contiguous()).strides().vec(),
                             .size = tensor.numel(),
                             .treatment = treatment_of(rule, name, aliases, tensor.dim())});
    }
    if (tensors_[r].size() != parameters_.size()) {
      fail<FailedPrecondition>("[optimizer] replica ", r, " has ", tensors_[r].size(),
                               " trainable parameters, replica 0 has ", parameters_.size(),
                               ": freeze and unfreeze the same ones on every replica");
    }
  }
  if (parameters_.empty()) {
    fail<FailedPrecondition>("[optimizer] ", rule.name(), ": the module has no parameter that requires a gradient");
  }
}

void FlatParameters::group(const std::vector<std::size_t>& unit_of) {
  std::vector<std::size_t> units;  // [group]
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const torch::ScalarType dtype = tensors_[0][p].scalar_type();
    const std::size_t unit = unit_of.empty() ? 0 : unit_of[p];
    std::size_t group = 0;
    while (group < groups_.size() && (groups_[group].dtype != dtype || units[group] != unit)) ++group;
    if (group == groups_.size()) {
      groups_.push_back({.dtype = dtype});
      units.push_back(unit);
    }
    parameters_[p].group = group;
    parameters_[p].offset = groups_[group].size;
    groups_[group].members.push_back(p);
    groups_[group].size += aligned_slice(parameters_[p].size);
  }
}

std::vector<std::size_t> FlatParameters::tables_apart(const torch::nn::Module& copy) const {
  std::set<const void*> tables;
  for (const auto& module : copy.modules()) {
    if (const auto* table = dynamic_cast<const RowTable*>(module.get())) tables.insert(tensor_id(table->weight()));
  }
  std::vector<std::size_t> list;
  for (const torch::Tensor& tensor : tensors_.front()) {
    if (!tables.empty()) list.push_back(tables.count(tensor_id(tensor)));
  }
  return list;
}

void FlatParameters::release(std::size_t group) {
  for (const torch::Tensor& copy : groups_[group].copies) release_memory(copy);
  homes_.clear();
  note_homes();
}

void FlatParameters::lay_out(const MirroredModule& module) {
  const StrategyCore& core = *Access::core(module);
  const bool elsewhere = dynamic_cast<const ServersPlacement*>(&core.placement()) != nullptr;
  group(elsewhere ? tables_apart(*module.copies().front()) : std::vector<std::size_t>());
  const torch::NoGradGuard no_grad;
  for (FlatGroup& group : groups_) {
    for (std::size_t r = 0; r < tensors_.size(); ++r) {
      const auto holder = static_cast<std::size_t>(core.placement().holder(static_cast<int>(r)));
      const bool share = holder != r;
      const auto options = tensors_[r][group.members.front()].options().requires_grad(false);
      group.copies.push_back(share ? group.copies[holder] : torch::zeros({group.size}, options));
      for (const std::size_t p : group.members) {
        torch::Tensor home = part_of(group.copies.back(), p);
        if (!share) home.copy_(tensors_[r][p].detach());
        tensors_[r][p].set_data(home);
        tensors_[r][p].mutable_grad().reset();
      }
    }
  }
}

void FlatParameters::share(const MirroredModule& module, const Optimizer& rule) {
  const torch::NoGradGuard no_grad;
  const std::shared_ptr<StrategyCore>& core = Access::core(module);
  const ShardingOptions& sharding = core->plan().sharding;
  const auto& sharing = extension_of<ParameterSharing>("sharding", "[optimizer] sharding.stage is 3");
  const auto unit_of = sharing.units(*module.copies().front(), sharding.min_unit_bytes);
  std::vector<std::size_t> numbers;
  for (const torch::Tensor& tensor : tensors_.front()) numbers.push_back(unit_of.at(tensor_id(tensor)));
  group(numbers);
  std::vector<ParameterUnit> units;
  std::vector<std::vector<torch::TensorOptions>> options;
  for (FlatGroup& group : groups_) {
    group.cuts = sharing.cuts(*this, group, rule, *core);
    ParameterUnit& unit = units.emplace_back(ParameterUnit{.size = group.size, .cuts = group.cuts, .parts = {}});
    for (const std::size_t p : group.members) {
      unit.parts.push_back({.name = parameters_[p].name, .offset = parameters_[p].offset, .size = parameters_[p].size});
    }
    std::vector<torch::TensorOptions>& each = options.emplace_back();
    for (const auto& own : tensors_) each.push_back(own[group.members.front()].options().requires_grad(false));
  }
  shared_ = sharing.make(core, std::move(units), std::move(options));
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (std::size_t r = 0; r < tensors_.size(); ++r) {
      const torch::Tensor flat = shared_->make_flat(g, static_cast<int>(r));
      groups_[g].copies.push_back(flat);
      for (const std::size_t p : groups_[g].members) {
        const torch::Tensor before = tensors_[r][p].detach();
        tensors_[r][p].set_data(
            shared_->view(flat, parameters_[p].shape, parameters_[p].strides, parameters_[p].offset));
        tensors_[r][p].mutable_grad().reset();
        shared_->fill(tensors_[r][p], before);
      }
    }
  }
}

void FlatParameters::keep_apart() {
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    parameters_[p].group = p;
    FlatGroup group{.dtype = tensors_[0][p].scalar_type(), .members = {p}, .size = parameters_[p].size};
    for (std::vector<torch::Tensor>& own : tensors_) {
      group.copies.push_back(own[p].detach());
      own[p].mutable_grad().reset();
    }
    groups_.push_back(std::move(group));
  }
}

void FlatParameters::note_homes() {
  homes_.resize(tensors_.size());
  for (std::size_t r = 0; r < tensors_.size(); ++r) {
    for (const torch::Tensor& tensor : tensors_[r]) homes_[r].push_back(home_of(tensor));
  }
}

const void* FlatParameters::home_of(const torch::Tensor& parameter) const {
  return shared_ == nullptr ? memory_id(parameter) : SharedParameters::home(parameter);
}

torch::Tensor FlatParameters::part_of(const torch::Tensor& flat, std::size_t parameter) const {
  const FlatParameter& where = parameters_[parameter];
  return flat.as_strided(where.shape, where.strides, flat.storage_offset() + where.offset);
}

torch::Tensor FlatParameters::laid_out(const torch::Tensor& gradient, std::size_t parameter) const {
  const FlatParameter& where = parameters_[parameter];
  const torch::ScalarType dtype = groups_[where.group].dtype;
  if (!gradient.defined()) return gradient;
  if (!gradient.is_sparse() && gradient.strides() == c10::IntArrayRef(where.strides) &&
      gradient.scalar_type() == dtype) {
    return gradient;
  }
  torch::Tensor dense = torch::empty_strided(where.shape, where.strides, dtype);
  dense.copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
  return dense;
}

void FlatParameters::backward(int local_id, const torch::Tensor& loss) const {
  if (!optimizers_.several()) return run_backward(loss);
  run_backward_for(loss, tensors_[static_cast<std::size_t>(local_id)]);
}

void FlatParameters::drop_gradients() {
  for (std::vector<torch::Tensor>& own : tensors_) {
    for (torch::Tensor& parameter : own) parameter.mutable_grad() = torch::Tensor();
  }
}

void FlatParameters::note_reached(const std::vector<torch::Tensor>& gradients) {
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    if (gradients[p].defined()) reached_[p] = 1;
  }
  if (--unnoted_ > 0) return;
  std::string names;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (reached_[p] == 0) names += (names.empty() ? "" : ", ") + parameters_[p].name;
  }
  if (names.empty()) return;
  log().warn(
      "[optimizer] none of the first {} losses depends on these parameters, which get no gradient: {}; look for a "
      "layer "
      "that forward() does not use, or freeze them before the optimizer is made",
      kFirstLosses, names);
}

std::vector<torch::Tensor> FlatParameters::take_gradients(int local_id) {
  const auto r = static_cast<std::size_t>(local_id);
  std::vector<torch::Tensor> gradients;
  gradients.reserve(parameters_.size());
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    torch::Tensor& parameter = tensors_[r][p];
    if (home_of(parameter) != homes_[r][p]) {
      fail<FailedPrecondition>(
          "[optimizer] ", parameters_[p].name, " of replica ", local_id,
          " was moved or converted after the optimizer was made, as torch::load() and ",
          "Module::to() do. Load weights into a module of their own and give them to ",
          "MirroredModule::load_state(), which leaves the parameters where they are; after ",
          "Module::to() make a new optimizer, and give it this one's slots by load_state(state())");
    }
    gradients.push_back(std::move(parameter.mutable_grad()));
    parameter.mutable_grad() = torch::Tensor();
  }
  return gradients;
}

}  // namespace cohort
