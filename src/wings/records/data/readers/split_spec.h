// The names of parts of a data set, as TensorFlow Datasets writes them: "train", "train[:80%]", "train[100:-50]",
// "train[:10%]+test".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

struct SplitPart {
  std::string split;
  int64_t first = 0;
  int64_t last = 0;  // one after the last example

  friend bool operator==(const SplitPart&, const SplitPart&) = default;
};

// Parses the name of a part. `sizes` has the number of examples of each split. Percentages are rounded to the closest
// example, negative numbers count from the end, and positions beyond an end are cut. InvalidArgument: the text has
// another form, or a part has no examples. NotFound: there is no such split.
std::vector<SplitPart> parse_split(std::string_view spec, const std::map<std::string, int64_t>& sizes);

}  // namespace cohort
