#include "models/run/partitions.h"

#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "base/fail.h"
#include "models/command/strategy_table.h"

namespace cohort {

namespace {

constexpr int64_t kMostParts = 1024;

// XLA's devices divide any dimension. Elsewhere the parts of an input are its rows and columns.
void require_rows_and_columns(const StrategyFlags& flags, const char* key, const std::vector<int64_t>& dims) {
  const std::string name = lower(flags.distribution_strategy);
  const auto rows = strategy_table();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const StrategyRow& each) { return name == each.name; });
  if (row == rows.end() || row->takes == StrategyTakes::kPlugin) return;
  constexpr std::size_t kImages = 4;  // with a dimension of channels
  const std::size_t first = dims.size() == kImages ? 2 : 1;
  for (std::size_t dim = 0; dim < std::min(first, dims.size()); ++dim) {
    if (dims[dim] == 1) continue;
    fail<InvalidArgument>("[train] ", key, " cuts ", dim == 0 ? "the batch" : "channels", " in ", dims[dim],
                          " parts, wanted [1, height, width, 1] under --distribution_strategy=", name,
                          ", which cuts height and width; --num_replicas divides the batch");
  }
}

}  // namespace

void divide_inputs(StrategyFlags& flags, const Task& task, const std::string& mode) {
  // Both are read: an evaluation has the configuration of its training.
  const std::vector<int64_t> train = task.input_partition_dims(true);
  const std::vector<int64_t> eval = task.input_partition_dims(false);
  require_rows_and_columns(flags, "task.train_input_partition_dims", train);
  require_rows_and_columns(flags, "task.eval_input_partition_dims", eval);
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
  int64_t parts = 1;
  for (const int64_t each : dims) {
    if (each <= kMostParts && (parts *= each) <= kMostParts) continue;
    fail<InvalidArgument>("[task] ", key, " is [", c10::Join(", ", given), "], wanted numbers whose product is ",
                          kMostParts, " or less");
  }
  if (planes) return {dims[0], dims[1], dims[2]};
  return {dims[0], dims[3], dims[1], dims[2]};
}

}  // namespace cohort
