#include "parameter_server/pending_steps.h"

#include <ATen/Functions.h>

#include <iterator>

#include "base/fail.h"

namespace cohort {

std::optional<std::vector<torch::Tensor>> PendingSteps::add(int64_t ordinal, const Share& share,
                                                            std::vector<torch::Tensor> part) {
  const torch::NoGradGuard no_grad;
  Step& step = steps_[ordinal];
  step.count = share.count;
  const bool dense = part.size() == 1;
  step.parts[share.index] = std::move(part);
  while (dense && !step.parts.empty()) {
    const auto next = step.parts.find(step.summed);
    if (next == step.parts.end()) break;
    if (step.summed > 0) {
      const auto sum = std::prev(next);
      next->second[0] = sum->second[0].add_(next->second[0]);
      step.parts.erase(sum);
    }
    ++step.summed;
  }
  const bool complete = dense ? step.summed == step.count : static_cast<int64_t>(step.parts.size()) == step.count;
  if (!complete) return std::nullopt;
  std::vector<torch::Tensor> whole;
  if (dense) {
    whole = {step.parts.begin()->second[0]};
  } else {
    std::vector<torch::Tensor> indices;
    std::vector<torch::Tensor> rows;
    for (const auto& [index, tensors] : step.parts) {
      indices.push_back(tensors[0]);
      rows.push_back(tensors[1]);
    }
    whole = {at::cat(indices), at::cat(rows)};
  }
  steps_.erase(ordinal);
  return whole;
}

std::vector<torch::Tensor> PendingSteps::state() const {
  std::vector<torch::Tensor> list;
  for (const auto& [ordinal, step] : steps_) {
    for (const auto& [index, part] : step.parts) {
      const auto size = static_cast<int64_t>(part.size());
      list.push_back(torch::tensor({ordinal, step.count, step.summed, index, size}, torch::kLong));
      for (const torch::Tensor& tensor : part) list.push_back(tensor.clone());
    }
  }
  return list;
}

void PendingSteps::load_state(const std::vector<torch::Tensor>& state) {
  std::map<int64_t, Step> steps;
  for (auto next = state.begin(); next != state.end();) {
    const torch::Tensor head = *next++;
    const int64_t* at = head.scalar_type() == torch::kLong && head.numel() == 5 ? head.data_ptr<int64_t>() : nullptr;
    if (at == nullptr || (at[4] != 1 && at[4] != 2) || std::distance(next, state.end()) < at[4]) {
      fail<InvalidArgument>("[parameter server] the gradients that wait for others of their step are damaged");
    }
    Step& step = steps[at[0]];
    step.count = at[1];
    step.summed = at[2];
    step.parts[at[3]] = {next, next + at[4]};
    next += at[4];
  }
  steps_ = std::move(steps);
}

}  // namespace cohort
