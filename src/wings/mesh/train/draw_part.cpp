#include "wings/mesh/train/draw_part.h"

#include <ATen/Functions.h>

#include "cohort/parallel/axes.h"
#include "cohort/replica.h"
#include "train/layers/support.h"

namespace cohort {

torch::Tensor drop_out_part(const torch::Tensor& x, double rate, const std::string& axis, int64_t dim) {
  torch::Tensor kept;
  {
    const torch::NoGradGuard no_grad;
    std::vector<int64_t> whole = x.sizes().vec();
    whole[static_cast<std::size_t>(dim)] *= Replica::current()->group(axis).size();
    const torch::Tensor ones = at::empty(whole, x.options(), x.suggest_memory_format()).fill_(1);
    kept = part_along(drop_out(ones, rate), axis, dim);
  }
  return x * kept;
}

}  // namespace cohort
