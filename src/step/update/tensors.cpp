// The update by tensor operations: one call of the rule for each run of parameters that are treated alike.
#include "step/update/tensors.h"

#include <ATen/Functions.h>

#include <numeric>

#include "base/flush_denormals.h"
#include "step/scaling.h"
#include "step/update/slots.h"

namespace cohort {

TensorUpdate::TensorUpdate(const FlatParameters& flat, const Optimizer& rule, std::vector<torch::Tensor> values)
    : flat_(flat), rule_(rule), values_(std::move(values)), slots_(make_slots(flat, rule.rule(), 0)) {
  for (std::size_t g = 0; g < slots_.size(); ++g) {
    for (torch::Tensor& slot : slots_[g]) slot = slot.to(values_[g].device());
  }
}

void TensorUpdate::copy_slots(const TensorUpdate& other) {
  const torch::NoGradGuard no_grad;
  for (std::size_t g = 0; g < slots_.size(); ++g) {
    for (std::size_t s = 0; s < slots_[g].size(); ++s) slots_[g][s].copy_(other.slots_[g][s]);
  }
}

bool TensorUpdate::update(const std::vector<torch::Tensor>& sums, StepContext context, const SquaredNorms& norms) {
  const FlushDenormals flush;
  const GradientOptions& gradient = rule_.gradient();
  Norms known;
  if (norms && needs_norm(gradient)) known = norms(sums);
  const std::vector<double>& squares = known.squares;
  if (gradient.global_clipnorm > 0.0 || gradient.loss_scale) {
    double squared_norm = known.all.value_or(std::accumulate(squares.begin(), squares.end(), 0.0));
    for (const torch::Tensor& flat : sums) {
      if (!squares.empty()) break;
      const double norm = flat.norm(2, torch::kDouble).item<double>();
      squared_norm += norm * norm;
    }
    if (!scale_by_norm(squared_norm, gradient, context)) return false;
  }
  // Runs of parameters that are treated alike go in one call.
  const bool alike = !rule_.rule().one_by_one() && gradient.clipnorm == 0.0;
  for (std::size_t g = 0; g < sums.size(); ++g) {
    const auto& members = flat_.groups()[g].members;
    for (std::size_t first = 0; first < members.size();) {
      std::size_t last = first + 1;
      const Treatment treatment = flat_.parameters()[members[first]].treatment;
      while (alike && last < members.size() && flat_.parameters()[members[last]].treatment == treatment) ++last;
      update_run(g, members[first], members[last - 1], sums[g], context, squares);
      first = last;
    }
  }
  return true;
}

void TensorUpdate::update_run(std::size_t group, std::size_t first, std::size_t last, const torch::Tensor& sums,
                              StepContext context, const std::vector<double>& squares) {
  if (adds_up_ && rule_.rule().one_by_one()) context.add_up = adds_up_(first);
  const int64_t begin = flat_.parameters()[first].offset;
  const int64_t end = flat_.parameters()[last].offset + flat_.parameters()[last].size;
  // A rule that takes whole parameters gets them in their shapes, others get runs of elements.
  const auto part = [&](const torch::Tensor& flat) {
    return rule_.rule().takes_whole() ? flat_.part_of(flat, first) : flat.slice(0, begin, end);
  };
  std::vector<torch::Tensor> slots;
  for (const torch::Tensor& slot : slots_[group]) slots.push_back(part(slot));
  torch::Tensor gradient = part(sums);
  if (rule_.gradient().clipnorm > 0.0 && !squares.empty()) {
    gradient.mul_(clip_factor(squares[first] * context.grad_scale * context.grad_scale, rule_.gradient().clipnorm));
  } else if (rule_.gradient().clipnorm > 0.0) {
    const torch::Tensor norm = gradient.norm(2, torch::kDouble).mul_(context.grad_scale);
    gradient.mul_(clip_factor(norm, rule_.gradient().clipnorm));
  }
  rule_.rule().update(part(values_[group]), gradient, slots, flat_.parameters()[first].treatment, context);
}

}  // namespace cohort
