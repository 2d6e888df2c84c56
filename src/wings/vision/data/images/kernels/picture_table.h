// The loop that makes a network's input of a batch of pictures: one table an instruction set and one for CUDA's cards;
// all give the same bits. It has only declarations, because it is compiled with other flags in each of the files.
#pragma once

#include <stdint.h>

#include "ops/kernels/isa.h"
#include "ops/kernels/reach.h"

namespace cohort::kernels {

// What stands outside a picture, as PaddingMode has it.
enum class Outside { kZeros, kEdge, kReflect, kSymmetric };

constexpr int64_t kMostChannels = 16;

// A batch of pictures, and what becomes of each.
struct PictureArgs {
  const uint8_t* from = nullptr;
  int64_t strides[4] = {};  // from an example, a channel, a row and a column to the next one
  int64_t channels = 0;
  int64_t in_height = 0;
  int64_t in_width = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t padding = 0;  // on every side, before the part that `draws` names
  Outside outside = Outside::kZeros;
  // [examples][3], in the memory of the kernel: the part's top and left in the picture with its padding, and whether it
  // is flipped left to right. Null: 0, 0 and no. Whatever they are, only the picture is read.
  const int64_t* draws = nullptr;
  float factors[kMostChannels] = {};
  float offsets[kMostChannels] = {};
};

struct PictureTable {
  // Writes [examples, channels, height, width]: byte * factor - offset of its channel.
  void (*crop_flip_normalize)(float* to, int64_t examples, const PictureArgs& args);
};

namespace baseline {
extern const PictureTable kPictureTable;
}
namespace avx2 {
extern const PictureTable kPictureTable;
}
namespace avx512 {
extern const PictureTable kPictureTable;
}
namespace cuda {
extern const PictureTable kPictureTable;
}

// Returns the table of an instruction set, which the CPU must be able to run.
const PictureTable& picture_table(Isa isa);
// Returns the fastest table that reaches the memory.
const PictureTable& picture_table(Reach reach);

}  // namespace cohort::kernels
