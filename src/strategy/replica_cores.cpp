#include "strategy/replica_cores.h"

#include <c10/util/StringUtil.h>

#include "base/fail.h"
#include "strategy/core.h"
#include "strategy/plan_checks.h"

namespace cohort {

namespace {

void require_own_device(const StrategyCore& core, const torch::Tensor& tensor, std::string_view caller) {
  for (int r = 0; r < core.num_local_replicas(); ++r) {
    if (core.replica(r).device() == tensor.device()) return;
  }
  fail<InvalidArgument>("[strategy] ", caller, " got a tensor on ", tensor.device(),
                        ", wanted one on a device of the strategy's replicas, within run()");
}

void require_cores(const ReplicaCores& cores, std::string_view caller) {
  if (cores.divide) return;
  fail<InvalidArgument>("[strategy] ", caller,
                        " came, but each replica of the strategy is one device, wanted replicas ",
                        "of several cores (input_partition_dims)");
}

}  // namespace

torch::Tensor split_among_cores(const StrategyCore& core, const torch::Tensor& tensor, const std::vector<int64_t>& dims,
                                std::string_view caller) {
  require_own_device(core, tensor, caller);
  if (static_cast<int64_t>(dims.size()) != tensor.dim()) {
    fail<InvalidArgument>("[strategy] ", caller, " got ", dims.size(), " numbers, [", c10::Join(", ", dims),
                          "], for a tensor of ", tensor.sizes(), ", wanted one for each of its ", tensor.dim(),
                          " dimensions");
  }
  require_cores(core.plan().cores, caller);
  return core.plan().cores.divide(tensor, dims, caller);
}

torch::Tensor replicate_among_cores(const StrategyCore& core, const torch::Tensor& tensor, std::string_view caller) {
  require_own_device(core, tensor, caller);
  require_cores(core.plan().cores, caller);
  return core.plan().cores.join(tensor);
}

torch::Tensor Strategy::experimental_split_to_logical_devices(const torch::Tensor& tensor,
                                                              const std::vector<int64_t>& partition_dimensions) const {
  constexpr std::string_view kName = "experimental_split_to_logical_devices";
  check_partition_dims(c10::str(kName, ": partition_dimensions"), partition_dimensions, core_->plan().cores.count);
  return split_among_cores(*core_, tensor, partition_dimensions, kName);
}

torch::Tensor Strategy::experimental_replicate_to_logical_devices(const torch::Tensor& tensor) const {
  return replicate_among_cores(*core_, tensor, "experimental_replicate_to_logical_devices");
}

}  // namespace cohort
