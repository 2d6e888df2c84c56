#include <ATen/Functions.h>

#include "cohort/parallel/axes.h"
#include "cohort/replica.h"
#include "train/layers/support.h"

namespace cohort {

torch::Tensor look_up_own(const std::string& who, const torch::Tensor& part, const torch::Tensor& x, int64_t rows,
                          const std::string& axis) {
  const Replica* replica = Replica::current();
  if (replica == nullptr) {
    fail<FailedPrecondition>(who, ": called outside run(), with a part of its rows; the replicas along \"", axis,
                             "\" look up together");
  }
  // One of the replicas along the axis has the row; the others add zeros. An index that none has stays outside.
  const int64_t own = part.size(0);
  const torch::Tensor here = x - own * replica->group(axis).rank();
  const torch::Tensor has = here.ge(0).logical_and(here.lt(own));
  const torch::Tensor row = at::where(has, here, at::where(x.ge(0).logical_and(x.lt(rows)), 0, own).to(x.dtype()));
  return at::embedding(part, row) * has.unsqueeze(-1).to(part.dtype());
}

torch::Tensor look_up_in_parts(const std::string& who, const torch::Tensor& part, const torch::Tensor& x, int64_t rows,
                               const std::string& axis) {
  return sum_along(look_up_own(who, part, x, rows, axis), axis);
}

}  // namespace cohort
