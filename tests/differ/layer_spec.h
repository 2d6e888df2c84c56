// A random layer of the library's as numbers, which its kind reads.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

#include "cohort/cohort.h"

namespace cohort::differ {

constexpr int64_t kBatchNorm = 13, kGroupNorm = 14;
constexpr int64_t kImageKinds = 17;
constexpr int64_t kSequenceKinds = 10;  // from kImageKinds on
constexpr int64_t kPlainKinds = 4;      // behind them: any input

// One layer as numbers; made() reads those that its kind has.
struct LayerSpec {
  int64_t kind = 0;
  int64_t width = 1;
  int64_t kernel[2] = {1, 1};
  int64_t stride = 1;
  int64_t activation = 0;
  bool same = false;
  bool bias = true;
  bool trainable = true;
  bool checkpointed = false;

  std::string text() const {
    return c10::str(made().name(), " (kind ", kind, ", width ", 2 * width, ", kernel ", kernel[0], "x", kernel[1],
                    ", stride ", stride, ", activation ", activation, same ? ", same" : "", bias ? "" : ", no bias",
                    trainable ? "" : ", frozen", checkpointed ? ", checkpointed" : "", ")");
  }
  Layer made(int64_t number = 0) const;
};

}  // namespace cohort::differ
