// Divides inputs among the replicas of a line.
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "base/fail.h"
#include "strategy/core.h"
#include "strategy/divided.h"
#include "strategy/plan_checks.h"
#include "wings/mesh/strategy/mesh_plan.h"
#include "wings/mesh/strategy/space/divided.h"

namespace cohort {

namespace {

// Returns this replica's line, which is what divides, so that there has to be one.
Communicator& line_along(const std::string& axis, std::string_view caller) {
  const Replica* replica = Replica::current();
  if (replica != nullptr) return replica->group(axis);
  fail<FailedPrecondition>("[strategy] ", caller, ": called outside run(); the replicas along \"", axis,
                           "\", which have a part each, divide a tensor together");
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
  plan.cores = {.count = parts,
                .train_dims = train_dims,
                .eval_dims = eval,
                .divide =
                    [axis](const torch::Tensor& tensor, const std::vector<int64_t>& dims, std::string_view caller) {
                      return space::divide(whole_of(tensor), dims, line_along(axis, caller));
                    },
                .join = whole_of};
}

}  // namespace cohort
