#include "step/update/slots.h"

#include <ATen/Functions.h>

namespace cohort {

bool is_half(torch::ScalarType dtype) {
  return dtype == torch::kHalf || dtype == torch::kBFloat16;
}

torch::ScalarType slot_dtype(torch::ScalarType dtype) {
  return is_half(dtype) ? torch::kFloat : dtype;
}

std::vector<SlotKind> slots_for(const Optimizer& rule, torch::ScalarType dtype) {
  const std::vector<std::string>& names = rule.rule().slots();
  std::vector<SlotKind> slots;
  for (std::size_t s = 0; s < names.size(); ++s) slots.push_back({names[s], rule.rule().initial_slot_value(s)});
  if (is_half(dtype) && rule.master_weights()) slots.push_back({kMaster, 0.0});
  return slots;
}

std::vector<std::vector<torch::Tensor>> make_slots(const FlatParameters& flat, const Optimizer& rule,
                                                   std::size_t copy) {
  std::vector<std::vector<torch::Tensor>> slots;
  for (const FlatGroup& group : flat.groups()) {
    const auto options = group.copies[copy].options().dtype(slot_dtype(group.dtype));
    std::vector<torch::Tensor> own;
    for (const SlotKind& slot : slots_for(rule, group.dtype)) {
      own.push_back(torch::full({group.size}, slot.initial, options));
    }
    slots.push_back(std::move(own));
  }
  return slots;
}

}  // namespace cohort
