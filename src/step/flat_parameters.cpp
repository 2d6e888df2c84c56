#include "step/flat_parameters.h"

#include <ATen/Functions.h>

#include "base/access.h"
#include "base/fail.h"
#include "base/slices.h"
#include "device/identity.h"
#include "strategy/module_tensors.h"

namespace cohort {

namespace {

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

}  // namespace

FlatParameters::FlatParameters(const MirroredModule& module, const Optimizer& rule) {
  collect(module, rule);
  const StrategyCore& core = *Access::core(module);
  if (core.joins()) {
    keep_apart();
  } else {
    lay_out(core);
  }
  note_homes();
}

void FlatParameters::collect(const MirroredModule& module, const Optimizer& rule) {
  tensors_.resize(module.copies().size());
  for (std::size_t r = 0; r < tensors_.size(); ++r) {
    require_apart(*module.copies()[r]);
    for (const auto& [name, tensor, aliases] : distinct_parameters(*module.copies()[r])) {
      if (!tensor.requires_grad()) continue;
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

void FlatParameters::lay_out(const StrategyCore& core) {
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const torch::ScalarType dtype = tensors_[0][p].scalar_type();
    std::size_t group = 0;
    while (group < groups_.size() && groups_[group].dtype != dtype) ++group;
    if (group == groups_.size()) groups_.push_back({.dtype = dtype});
    parameters_[p].group = group;
    parameters_[p].offset = groups_[group].size;
    groups_[group].members.push_back(p);
    groups_[group].size += aligned_slice(parameters_[p].size);
  }

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
    for (const torch::Tensor& tensor : tensors_[r]) homes_[r].push_back(memory_id(tensor));
  }
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

std::vector<torch::Tensor> FlatParameters::take_gradients(int local_id) {
  const auto r = static_cast<std::size_t>(local_id);
  std::vector<torch::Tensor> gradients;
  gradients.reserve(parameters_.size());
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    torch::Tensor& parameter = tensors_[r][p];
    if (memory_id(parameter) != homes_[r][p]) {
      fail<FailedPrecondition>("[optimizer] ", parameters_[p].name, " of replica ", local_id,
                               " was moved or converted after ",
                               "the optimizer was made; make a new optimizer after Module::to()");
    }
    gradients.push_back(std::move(parameter.mutable_grad()));
    parameter.mutable_grad() = torch::Tensor();
  }
  return gradients;
}

}  // namespace cohort
