// The loops over pixels: one table an instruction set; all give the same bytes. It has only declarations, because it is
// compiled with other flags in each of the three files.
#pragma once

#include <stdint.h>

#include "ops/kernels/isa.h"

namespace cohort::kernels {

// Each output is a weighted sum of neighbouring inputs, in fixed point.
struct Weighting {
  const int64_t* first;    // [outputs]: the first input of each
  const int64_t* count;    // [outputs]: how many inputs it has
  const int32_t* weights;  // [outputs][most]
  int64_t most;            // inputs an output
};

// Bits of a weight behind the point: a sum of bytes and weights of both signs fits 32 bits.
constexpr int kWeightBits = 32 - 8 - 2;

// Rows that are resized at once.
constexpr int64_t kPixelRows = 32;

struct PixelTable {
  // [rows, in, channels] to [rows, out, channels]; the scratch has kPixelRows of both.
  void (*resize_rows)(const uint8_t* from, uint8_t* to, int64_t rows, int64_t in, int64_t out, int64_t channels,
                      const Weighting& by, uint8_t* scratch);
  // [in, width] to [out, width].
  void (*resize_columns)(const uint8_t* from, uint8_t* to, int64_t out, int64_t width, const Weighting& by);
  // [pixels, 3] to [3, pixels]: byte * factor - offset of its channel.
  void (*to_planes)(const uint8_t* from, float* to, int64_t pixels, const float* factors, const float* offsets);
};

namespace baseline {
extern const PixelTable kPixelTable;
}
namespace avx2 {
extern const PixelTable kPixelTable;
}
namespace avx512 {
extern const PixelTable kPixelTable;
}

// Returns the table of an instruction set, which the CPU must be able to run.
const PixelTable& pixel_table(Isa isa);
// Returns the fastest table for this CPU.
const PixelTable& pixel_table();

}  // namespace cohort::kernels
