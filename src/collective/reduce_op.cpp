#include <algorithm>
#include <cctype>
#include <string>

#include "base/fail.h"
#include "cohort/communicator.h"

namespace cohort {

ReduceOp parse_reduce_op(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  if (upper == "SUM") return ReduceOp::kSum;
  if (upper == "MEAN") return ReduceOp::kMean;
  fail<InvalidArgument>("[collective] reduce op \"", text, "\" is not known, only SUM and MEAN are");
}

std::string_view to_string(ReduceOp op) {
  return op == ReduceOp::kSum ? "SUM" : "MEAN";
}

}  // namespace cohort
