#include "step/update/slots.h"

#include <ATen/Functions.h>

namespace cohort {

std::vector<std::vector<torch::Tensor>> make_slots(const FlatParameters& flat, const UpdateRule& rule,
                                                   std::size_t copy) {
  std::vector<std::vector<torch::Tensor>> slots;
  for (const FlatGroup& group : flat.groups()) {
    const bool half = group.dtype == torch::kHalf || group.dtype == torch::kBFloat16;
    const auto options = group.copies[copy].options().dtype(half ? torch::kFloat : group.dtype);
    std::vector<torch::Tensor> own;
    for (std::size_t s = 0; s < rule.slots().size(); ++s) {
      own.push_back(torch::full({group.size}, rule.initial_slot_value(s), options));
    }
    slots.push_back(std::move(own));
  }
  return slots;
}

}  // namespace cohort
