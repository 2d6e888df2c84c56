// The source of the records of TFRecord files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "cohort/data/tfrecord.h"
#include "data/node.h"

namespace cohort {

struct RecordRange {
  std::filesystem::path file;
  int64_t first = 0;
  int64_t count = -1;  // the number of records, which have to be there; -1: all to the end of the file
};

// Returns the source of these ranges. x is uint8 [bytes]; with `places` more[0] is int64 {number of the range, offset
// in its file}. Workers divide the ranges as they divide files.
NodePtr make_records(std::vector<RecordRange> ranges, const TFRecordReaderOptions& options, bool places = false);

}  // namespace cohort
