#include "models/run/partitions.h"

#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "base/fail.h"

namespace cohort {

void divide_inputs(StrategyFlags& flags, const Task& task, const std::string& mode) {
  // Both are read: an evaluation has the configuration of its training.
  const std::vector<int64_t> train = task.input_partition_dims(true);
  const std::vector<int64_t> eval = task.input_partition_dims(false);
  const bool trains = mode != "eval" && mode != "continuous_eval";
  const bool evaluates = mode != "train";
  if (trains) flags.input_partition_dims = train;
  if (evaluates) flags.eval_input_partition_dims = eval;
  if (!trains || !evaluates) return;
  if (train.empty()) flags.input_partition_dims = eval;
  if (eval.empty()) flags.eval_input_partition_dims = train;
  const int64_t train_parts = c10::multiply_integers(flags.input_partition_dims);
  const int64_t eval_parts = c10::multiply_integers(flags.eval_input_partition_dims);
  if (train_parts == eval_parts) return;
  fail<InvalidArgument>("[train] task.train_input_partition_dims has ", train_parts,
                        " parts and task.eval_input_partition_dims ", eval_parts, ", but with --mode=", mode,
                        " the same replicas do both, wanted as many");
}

std::vector<int64_t> partition_dims_of(const std::string& key, const std::vector<int64_t>& given, bool planes) {
  if (given.empty()) return {};
  const bool fits = given.size() == 4 || given.size() == 2;
  const bool positive = std::all_of(given.begin(), given.end(), [](int64_t parts) { return parts > 0; });
  const std::vector<int64_t> dims = given.size() == 2 ? std::vector<int64_t>{1, given[0], given[1], 1} : given;
  if (!fits || !positive || (planes && dims[3] != 1)) {
    fail<InvalidArgument>("[task] ", key, " is [", c10::Join(", ", given),
                          "], wanted numbers of 1 or more for batch, height, width and channels, or for height and "
                          "width",
                          planes ? "; the model takes images without a dimension of channels" : "");
  }
  if (planes) return {dims[0], dims[1], dims[2]};
  return {dims[0], dims[3], dims[1], dims[2]};
}

}  // namespace cohort
