// Synchronous steps that wait for shares. They are saved as numbers in CPU tensors, read back by a pointer.
#include "wings/parameter_server/server/pending_steps.h"

#include <ATen/Functions.h>

#include <iterator>

#include "base/fail.h"

namespace cohort {

namespace {

[[noreturn]] void damaged_steps() {
  fail<InvalidArgument>("[parameter server] the gradients that wait for others of their step are damaged");
}

bool is_dense(const PendingSteps::Part& part) {
  return part.size() == 1;
}

// Returns the closure of share 0. A peer may send any numbers, so the subtraction must not overflow.
int64_t first_of(const UpdateId& id, const Share& share) {
  return static_cast<int64_t>(static_cast<uint64_t>(id.closure) - static_cast<uint64_t>(share.index));
}

}  // namespace

std::optional<PendingSteps::Part> PendingSteps::add(const UpdateId& id, const Share& share, Part part) {
  const torch::NoGradGuard no_grad;
  const int64_t first = first_of(id, share);
  const bool dense = is_dense(part);
  Step& step = steps_[id.ordinal];
  if (!step.parts.empty() && first < step.first) return std::nullopt;
  if (!step.parts.empty() && first > step.first) step = {};
  if (!step.parts.empty() && (step.count != share.count || is_dense(step.parts.begin()->second) != dense)) {
    fail<InvalidArgument>("[parameter server] a gradient is share ", share.index, " of ", share.count,
                          ", but the others of its step are of ", step.count, " or of another kind");
  }
  if (dense && share.index < step.summed) return std::nullopt;  // the sum contains it already
  step.first = first;
  step.count = share.count;
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
  Part whole;
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
  steps_.erase(id.ordinal);
  return whole;
}

std::vector<torch::Tensor> PendingSteps::state() const {
  std::vector<torch::Tensor> list;
  for (const auto& [ordinal, step] : steps_) {
    for (const auto& [index, part] : step.parts) {
      const auto size = static_cast<int64_t>(part.size());
      list.push_back(torch::tensor({ordinal, step.first, step.count, step.summed, index, size}, torch::kLong));
      for (const torch::Tensor& tensor : part) list.push_back(tensor.clone());
    }
  }
  return list;
}

void PendingSteps::load_state(const std::vector<torch::Tensor>& state,
                              const std::function<void(const Part&)>& require_part) {
  constexpr int64_t kHead = 6;  // the number of numbers that state() writes for each step
  std::map<int64_t, Step> steps;
  for (auto next = state.begin(); next != state.end();) {
    const torch::Tensor head = *next++;
    if (head.scalar_type() != torch::kLong || head.numel() != kHead || !head.is_contiguous()) damaged_steps();
    const auto* const at = head.data_ptr<int64_t>();
    const Share share{.index = at[4], .count = at[2]};
    const int64_t summed = at[3];
    const int64_t size = at[5];
    if (share.index < 0 || share.index >= share.count || summed < 0 || summed >= share.count) damaged_steps();
    if ((size != 1 && size != 2) || std::distance(next, state.end()) < size) damaged_steps();
    const Part part(next, next + size);
    next += size;
    require_part(part);
    const auto [place, is_new] = steps.emplace(at[0], Step{.first = at[1], .count = share.count, .summed = summed});
    Step& step = place->second;
    const bool alike = step.first == at[1] && step.count == share.count && step.summed == summed &&
                       (is_new || is_dense(step.parts.begin()->second) == is_dense(part));
    if (!alike || !step.parts.emplace(share.index, part).second) damaged_steps();
  }
  for (const auto& [ordinal, step] : steps) {
    // add() finds the sum by its place, and takes a step for complete when the last share arrives.
    const bool dense = is_dense(step.parts.begin()->second);
    const bool summed = step.summed == 0 || (dense && step.parts.begin()->first == step.summed - 1);
    if (!summed || static_cast<int64_t>(step.parts.size()) >= step.count) damaged_steps();
  }
  steps_ = std::move(steps);
}

}  // namespace cohort
