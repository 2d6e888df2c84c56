#include "wings/comm_hooks/step/outer_step.h"

#include <ATen/Functions.h>

#include <utility>

#include "base/fail.h"

namespace cohort {

OuterStep::OuterStep(const FlatParameters& flat, const LocalSgdOptions& options, int workers)
    : flat_(flat), options_(options), workers_(workers) {}

void OuterStep::begin() {
  if (std::exchange(is_apart_, true)) return;
  for (std::size_t g = 0; g < flat_.groups().size(); ++g) {
    const torch::Tensor& own = flat_.groups()[g].copies.front();
    if (begin_.size() <= g) begin_.push_back(at::empty_like(own));
    begin_[g].copy_(own);
  }
}

void OuterStep::bring_together(const std::vector<torch::Tensor>& moved, const std::function<void()>& sum) {
  for (std::size_t g = 0; g < begin_.size(); ++g) {
    torch::Tensor part = moved[g];
    at::sub_out(part, begin_[g], flat_.groups()[g].copies.front()).div_(workers_);
  }
  sum();
  const bool first = momentum_.empty();
  for (std::size_t g = 0; g < begin_.size(); ++g) {
    torch::Tensor step = moved[g];
    if (options_.outer_momentum > 0.0) {
      if (first) momentum_.push_back(at::zeros_like(step));
      momentum_[g].mul_(options_.outer_momentum).add_(step);
      step = options_.outer_nesterov ? step.add(momentum_[g], options_.outer_momentum) : momentum_[g];
    }
    begin_[g].sub_(step, options_.outer_learning_rate);
    flat_.groups()[g].copies.front().copy_(begin_[g]);
  }
  is_apart_ = false;
}

std::vector<torch::Tensor> OuterStep::state() const {
  std::vector<torch::Tensor> list = {torch::tensor(int64_t{is_apart_ ? 1 : 0}, torch::kLong)};
  for (std::size_t g = 0; g < flat_.groups().size(); ++g) {
    for (const auto* each : {&begin_, &momentum_})
      list.push_back(each->empty() ? torch::empty({0}) : (*each)[g].clone());
  }
  return list;
}

void OuterStep::load(std::span<const torch::Tensor> state) {
  forget();
  is_apart_ = state.front().item<int64_t>() != 0;
  for (std::size_t g = 0; g < flat_.groups().size(); ++g) {
    const FlatGroup& group = flat_.groups()[g];
    for (const auto& [list, at] : {std::pair(&begin_, 1 + 2 * g), std::pair(&momentum_, 2 + 2 * g)}) {
      if (state[at].numel() == 0 && group.size > 0) continue;
      if (state[at].sizes() != group.copies.front().sizes()) {
        fail<InvalidArgument>("[optimizer] load_accumulated: the outer state of local_sgd has shape ",
                              state[at].sizes(), ", wanted ", group.copies.front().sizes());
      }
      list->push_back(state[at].to(group.dtype, /*non_blocking=*/false, /*copy=*/true));
    }
  }
}

void OuterStep::forget() {
  begin_.clear();
  momentum_.clear();
  is_apart_ = false;
}

}  // namespace cohort
