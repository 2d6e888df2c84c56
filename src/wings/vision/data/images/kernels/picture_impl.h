// The pictures' one source, compiled once an instruction set (COHORT_ISA) with other flags and once for CUDA; see
// ops/kernels/vector_impl.h for why it uses nothing of the standard library.
#include "ops/kernels/loops.h"
#include "wings/vision/data/images/kernels/picture_table.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

// Returns the place that pixel `i` of a line of so many is taken from; -1: from none, it is 0.
COHORT_ON_DEVICE inline int64_t source_of(int64_t i, int64_t size, Outside outside) {
  if (i >= 0 && i < size) return i;
  if (outside == Outside::kZeros) return -1;
  if (outside != Outside::kEdge) {
    const int64_t shared = outside == Outside::kReflect ? 0 : 1;
    i = i < 0 ? -i - shared : 2 * size - 2 + shared - i;
  }
  return i < 0 ? 0 : i < size ? i : size - 1;
}

// A line that lies in the picture. kStep is the step from a pixel to the next one; 0: it is `step`.
template <int kStep>
COHORT_ON_DEVICE inline void write_inside(const uint8_t* __restrict from, int64_t step, float* __restrict to,
                                          int64_t width, float factor, float offset) {
  COHORT_EACH_IN_ROW(x, width) {
    to[x] = static_cast<float>(from[x * (kStep == 0 ? step : kStep)]) * factor - offset;
  }
}

COHORT_LOOP crop_flip_normalize_loop(int64_t rows, float* to, PictureArgs args) {
  COHORT_EACH_ROW(row, rows) {
    const int64_t channel = row / args.height % args.channels;
    const int64_t example = row / (args.height * args.channels);
    const int64_t* const draw = args.draws == nullptr ? nullptr : args.draws + 3 * example;
    const int64_t top = (draw == nullptr ? 0 : draw[0]) - args.padding;
    const int64_t left = (draw == nullptr ? 0 : draw[1]) - args.padding;
    const bool flipped = draw != nullptr && draw[2] != 0;
    const float factor = args.factors[channel];
    const float offset = args.offsets[channel];
    const int64_t width = args.width;
    float* const line = to + row * width;
    const int64_t y = source_of(top + row % args.height, args.in_height, args.outside);
    if (y < 0) {
      COHORT_EACH_IN_ROW(x, width) line[x] = 0.0F * factor - offset;
      continue;
    }
    const uint8_t* const from = args.from + example * args.strides[0] + channel * args.strides[1] + y * args.strides[2];
    const int64_t column = args.strides[3];
    if (left >= 0 && left + width <= args.in_width) {
      const uint8_t* const first = from + (flipped ? left + width - 1 : left) * column;
      const int64_t step = flipped ? -column : column;
      if (step == 1) {
        write_inside<1>(first, step, line, width, factor, offset);
      } else if (step == -1) {
        write_inside<-1>(first, step, line, width, factor, offset);
      } else {
        write_inside<0>(first, step, line, width, factor, offset);
      }
      continue;
    }
    COHORT_EACH_IN_ROW(x, width) {
      const int64_t at = source_of(left + (flipped ? width - 1 - x : x), args.in_width, args.outside);
      const float value = at < 0 ? 0.0F : static_cast<float>(from[at * column]);
      line[x] = value * factor - offset;
    }
  }
}

void crop_flip_normalize(float* to, int64_t examples, const PictureArgs& args) {
  run_rows<crop_flip_normalize_loop>(examples * args.channels * args.height, args.width, to, args);
}

}  // namespace

const PictureTable kPictureTable = {crop_flip_normalize};

}  // namespace cohort::kernels::COHORT_ISA
