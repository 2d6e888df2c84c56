#include "wings/mesh/train/parts_between.h"

#include "cohort/parallel/mesh_strategy.h"

namespace cohort {

const std::string& PartsBetween::parts_axis() const {
  static const std::string none;
  return none;
}

int64_t PartsBetween::parts_dim() const {
  return 1;
}

bool PartsBetween::passes_those_of(const PartsBetween& end) const {
  if (!passes() || (parts() == Parts::kPassesChannels && end.parts_dim() != 1)) return false;
  return parts_axis().empty() || parts_axis() == end.parts_axis();
}

bool PartsBetween::meets(PartsBetween* PartsBetween::*direction, Parts wanted) const {
  const PartsBetween* other = this->*direction;
  while (other != nullptr && other->passes_those_of(*this)) other = other->*direction;
  return other != nullptr && other->parts() == wanted && other->parts_axis() == parts_axis() &&
         other->parts_dim() == parts_dim();
}

torch::Tensor PartsBetween::given(const torch::Tensor& part) const {
  if (gives_parts()) return part;
  return ends_ && parts() == Parts::kMakes ? parts_along(part, parts_axis(), parts_dim())
                                           : gather_along(part, parts_axis(), parts_dim());
}

const PartsBetween* PartsBetween::passed_from() const {
  if (!passes()) return nullptr;
  const PartsBetween* maker = before_;
  while (maker != nullptr && maker->passes()) maker = maker->before_;
  return maker != nullptr && maker->gives_parts() ? maker : nullptr;
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
