#include "strategy/cores.h"

#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "base/fail.h"
#include "record/recorder.h"
#include "strategy/core.h"

namespace cohort {

void check_partition_dims(std::string_view option, const std::vector<int64_t>& dims, int cores) {
  const bool positive = std::all_of(dims.begin(), dims.end(), [](int64_t parts) { return parts > 0; });
  const int64_t parts = c10::multiply_integers(dims);
  if (positive && parts == cores) return;
  fail<InvalidArgument>("[strategy] ", option, " is [", c10::Join(", ", dims), "], of which the product is ", parts,
                        ", wanted numbers above 0 whose product is the number of cores of a replica, ", cores);
}

torch::Tensor split_among_cores(const StrategyCore& core, const torch::Tensor& tensor, const std::vector<int64_t>& dims,
                                std::string_view caller) {
  bool own = false;
  for (int r = 0; r < core.num_local_replicas(); ++r) own |= core.replica(r).device() == tensor.device();
  if (!own) {
    fail<InvalidArgument>("[strategy] ", caller, " got a tensor on ", tensor.device(),
                          ", wanted one on a device of the strategy's replicas, within run()");
  }
  if (static_cast<int64_t>(dims.size()) != tensor.dim()) {
    fail<InvalidArgument>("[strategy] ", caller, " got ", dims.size(), " numbers, [", c10::Join(", ", dims),
                          "], for a tensor of ", tensor.sizes(), ", wanted one for each of its ", tensor.dim(),
                          " dimensions");
  }
  return record::shard(tensor, dims);
}

}  // namespace cohort
