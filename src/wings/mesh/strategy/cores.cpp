#include "wings/mesh/strategy/cores.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "base/extension.h"
#include "base/fail.h"
#include "strategy/core.h"
#include "strategy/core_divider.h"
#include "strategy/plan_checks.h"
#include "wings/mesh/strategy/space/divided.h"

namespace cohort {

namespace {

// Along an axis of the role kSpace this replica's line is what divides, so that there has to be one.
Communicator& line_of(const StrategyCore& core, std::string_view caller) {
  const Replica* replica = Replica::current();
  if (replica != nullptr) return replica->group(core.plan().space_axis);
  fail<FailedPrecondition>("[strategy] ", caller, ": called outside run(); the replicas along \"",
                           core.plan().space_axis, "\", which have a part each, divide a tensor together");
}

void require_own_device(const StrategyCore& core, const torch::Tensor& tensor, std::string_view caller) {
  for (int r = 0; r < core.num_local_replicas(); ++r) {
    if (core.replica(r).device() == tensor.device()) return;
  }
  fail<InvalidArgument>("[strategy] ", caller, " got a tensor on ", tensor.device(),
                        ", wanted one on a device of the strategy's replicas, within run()");
}

}  // namespace

void divide_inputs_along(StrategyPlan& plan, std::string_view speaker, const std::string& axis,
                         const std::vector<int64_t>& train_dims, const std::vector<int64_t>& eval_dims) {
  const int parts = plan.topology.axis(axis).size;
  const std::vector<int64_t>& eval = eval_dims.empty() ? train_dims : eval_dims;
  for (const auto& [option, dims] :
       {std::pair("input_partition_dims", train_dims), std::pair("eval_input_partition_dims", eval)}) {
    if (dims.empty()) continue;
    check_partition_dims(c10::str(speaker, ": ", option), dims, parts);
    constexpr std::size_t kImages = 4;  // with a dimension of channels
    const std::size_t first = dims.size() >= kImages ? 2 : 1;
    for (std::size_t dim = 0; dim < std::min(first, dims.size()); ++dim) {
      if (dims[dim] == 1) continue;
      fail<InvalidArgument>("[strategy] ", speaker, ": ", option, " is [", c10::Join(", ", dims), "], which cuts ",
                            dim == 0 ? "examples" : "channels", " (dimension ", dim, ") in ", dims[dim],
                            " parts, wanted 1: height and width are cut, and a batch axis divides examples");
    }
  }
  plan.space_axis = axis;
  plan.cores.count = parts;
  plan.cores.train_dims = train_dims;
  plan.cores.eval_dims = eval;
}

torch::Tensor split_among_cores(const StrategyCore& core, const torch::Tensor& tensor, const std::vector<int64_t>& dims,
                                std::string_view caller) {
  require_own_device(core, tensor, caller);
  if (static_cast<int64_t>(dims.size()) != tensor.dim()) {
    fail<InvalidArgument>("[strategy] ", caller, " got ", dims.size(), " numbers, [", c10::Join(", ", dims),
                          "], for a tensor of ", tensor.sizes(), ", wanted one for each of its ", tensor.dim(),
                          " dimensions");
  }
  if (core.plan().space_axis.empty()) {
    for (const CoreDivider& device : extensions<CoreDivider>()) return device.divide(tensor, dims);
    fail<InvalidArgument>("[strategy] ", caller, " got a tensor on ", tensor.device(), ", which has no cores");
  }
  return space::divide(whole_of(tensor), dims, line_of(core, caller));
}

torch::Tensor replicate_among_cores(const StrategyCore& core, const torch::Tensor& tensor, std::string_view caller) {
  if (!core.plan().space_axis.empty()) {
    require_own_device(core, tensor, caller);
    return whole_of(tensor);
  }
  const std::vector<int64_t> ones(static_cast<std::size_t>(tensor.dim()), 1);
  return split_among_cores(core, tensor, ones, caller);
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
