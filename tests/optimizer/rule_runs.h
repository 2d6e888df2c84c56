// Runs of update rules by hand, without an engine: by segments (the kernels) and by tensors.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "cohort/optimizer.h"
#include "optimizer/update_rule.h"

namespace cohort::testing_support {

// Numbers in [-0.5, 0.5) of a linear congruential generator, exact in float64; the same as in reference.py.
inline torch::Tensor numbers(int64_t seed, torch::IntArrayRef shape, torch::ScalarType dtype) {
  torch::Tensor values = torch::empty(shape, torch::kDouble);
  auto* data = values.data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    data[i] = static_cast<double>(seed) / 2147483648.0 - 0.5;
  }
  return values.to(dtype);
}

inline std::vector<torch::Tensor> make_slots(const UpdateRule& rule, const torch::Tensor& parameter) {
  std::vector<torch::Tensor> slots;
  for (std::size_t s = 0; s < rule.slots().size(); ++s)
    slots.push_back(torch::full_like(parameter, rule.initial_slot_value(s)));
  return slots;
}

// Calls visit with a segment for each range between neighbouring cuts (elements; the ends are implied).
template <typename Visit>
void each_segment(const torch::Tensor& parameter, const torch::Tensor& gradient,
                  const std::vector<torch::Tensor>& slots, Treatment treatment, double trust_ratio,
                  std::vector<int64_t> cuts, const Visit& visit) {
  const auto item = static_cast<int64_t>(parameter.element_size());
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(parameter.numel());
  for (std::size_t c = 1; c < cuts.size(); ++c) {
    const int64_t begin = std::min(cuts[c - 1], parameter.numel());
    const int64_t end = std::min(cuts[c], parameter.numel());
    if (begin == end) continue;
    std::vector<void*> pointers;
    for (const torch::Tensor& slot : slots) pointers.push_back(static_cast<char*>(slot.data_ptr()) + begin * item);
    const Segment segment{.dtype = parameter.scalar_type(),
                          .parameter = static_cast<char*>(parameter.data_ptr()) + begin * item,
                          .gradient = static_cast<char*>(gradient.data_ptr()) + begin * item,
                          .slots = pointers.data(),
                          .size = end - begin,
                          .treatment = treatment,
                          .trust_ratio = trust_ratio,
                          .shape = {parameter.sizes().data(), parameter.sizes().size()},
                          .strides = {parameter.strides().data(), parameter.strides().size()}};
    visit(segment);
  }
}

// One update of a whole parameter, cut into segments, as an engine makes it. Overwrites the gradient where the rule
// does.
inline void update_by_segments(const UpdateRule& rule, const torch::Tensor& parameter, const torch::Tensor& gradient,
                               const std::vector<torch::Tensor>& slots, Treatment treatment, const StepContext& context,
                               std::vector<int64_t> cuts) {
  if (rule.takes_whole()) cuts.clear();
  double trust_ratio = 1.0;
  if (rule.needs_norms()) {
    SquaredNorms total;
    each_segment(parameter, gradient, slots, treatment, 1.0, cuts, [&](const Segment& segment) {
      const SquaredNorms norms = rule.prepare(segment, context);
      total.parameter += norms.parameter;
      total.direction += norms.direction;
    });
    trust_ratio = rule.trust_ratio(total);
  }
  each_segment(parameter, gradient, slots, treatment, trust_ratio, cuts,
               [&](const Segment& segment) { rule.update(segment, context); });
}

}  // namespace cohort::testing_support
