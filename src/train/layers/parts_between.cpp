#include "train/layers/parts_between.h"

namespace cohort {

const std::string& PartsBetween::parts_axis() const {
  static const std::string none;
  return none;
}

bool PartsBetween::meets(PartsBetween* PartsBetween::*direction, Parts wanted) const {
  const PartsBetween* other = this->*direction;
  while (other != nullptr && other->parts() == Parts::kPasses) other = other->*direction;
  return other != nullptr && other->parts() == wanted && other->parts_axis() == parts_axis();
}

void join_parts(const std::vector<std::shared_ptr<LayerModule>>& layers) {
  PartsBetween* before = nullptr;
  for (const auto& layer : layers) {
    auto* own = dynamic_cast<PartsBetween*>(layer.get());
    if (own != nullptr) own->before_ = before;
    if (before != nullptr) before->next_ = own;
    before = own;
  }
}

}  // namespace cohort
