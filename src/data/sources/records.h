// Records of TFRecord files as a source.
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
  int64_t count = -1;  // -1: to the end of the file; else so many have to be there
};

// x: uint8 [bytes]; with `places` also more[0]: int64 {number of the range, offset in its file}. A worker's part of the
// files is its part of the ranges.
NodePtr make_records(std::vector<RecordRange> ranges, const TFRecordReaderOptions& options, bool places = false);

}  // namespace cohort
