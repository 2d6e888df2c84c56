// Data transformations in two forms: the library's dataset, and a plain interpreter of lists.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/dataset.h"

namespace cohort::differ {

// A row of an element: an input and, after zip(), a target.
struct Row {
  int64_t x = 0;
  std::optional<int64_t> y = std::nullopt;
  bool operator==(const Row&) const = default;
};
using Rows = std::vector<Row>;

struct List {
  std::vector<Rows> elements;  // each has one row unless batched
  bool batched = false;
  bool paired = false;  // with targets
};

enum class Kind {
  kMap,
  kBatch,
  kUnbatch,
  kRepeat,
  kTake,
  kSkip,
  kFilter,
  kZip,
  kConcatenate,
  kInterleave,
  kCache,
  kPrefetch,
  kShard,
  kShuffle,
  kCount
};

// One transformation. It is skipped if it does not fit its input.
struct Operation {
  Kind kind = Kind::kMap;
  int64_t number = 1;  // of elements, of a batch's rows, of shards
  int64_t second = 0;  // threads, block length, index of the shard
  bool flag = false;   // drop_remainder

  std::string text() const {
    static const char* const names[] = {"map", "batch",       "unbatch",    "repeat", "take",     "skip",  "filter",
                                        "zip", "concatenate", "interleave", "cache",  "prefetch", "shard", "shuffle"};
    return c10::str(names[static_cast<int>(kind)], "(", number, ", ", second, flag ? ", drop" : "", ")");
  }
  bool fits(const List& input) const {
    switch (kind) {
      case Kind::kBatch:
        return !input.batched;
      case Kind::kUnbatch:
        return input.batched;
      case Kind::kZip:
      case Kind::kConcatenate:
      case Kind::kInterleave:
        return !input.batched && !input.paired;
      default:
        return true;
    }
  }
  Dataset on(const Dataset& input) const;
  List on(const List& input) const;
  std::vector<Rows> interleaved(const std::vector<Rows>& input) const;
};

}  // namespace cohort::differ
