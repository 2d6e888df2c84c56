// The loops over pixels for every instruction set of this CPU, beside plain ones.
#include "wings/vision/data/images/kernels/pixel_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace cohort::kernels::pixel_kernels_test {
namespace {

std::vector<uint8_t> noise(int64_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::vector<uint8_t> bytes(static_cast<std::size_t>(count));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// Weights of both signs, that lead out of a byte's range, too.
struct Resizing {
  Resizing(int64_t in, int64_t out, int64_t most) : most(most), out(out) {
    std::mt19937 random(7);
    for (int64_t i = 0; i < out; ++i) {
      count.push_back(1 + i % std::min(most, in));
      first.push_back(i * (in - count.back()) / std::max<int64_t>(out - 1, 1));
      for (int64_t k = 0; k < most; ++k) {
        values.push_back(static_cast<int32_t>(random() % (3 << kWeightBits) / static_cast<unsigned>(most)) -
                         (1 << kWeightBits) / static_cast<int32_t>(most));
      }
    }
  }
  Weighting view() const { return {first.data(), count.data(), values.data(), most}; }

  // Output i at inputs from[0], from[stride] and so on.
  uint8_t plain(const uint8_t* from, int64_t stride, int64_t i) const {
    const auto output = static_cast<std::size_t>(i);
    int64_t sum = 1 << (kWeightBits - 1);
    for (int64_t k = 0; k < count[output]; ++k) {
      sum += int64_t{from[(first[output] + k) * stride]} * values[static_cast<std::size_t>(i * most + k)];
    }
    return static_cast<uint8_t>(std::clamp<int64_t>(sum >> kWeightBits, 0, 255));
  }

  int64_t most, out;
  std::vector<int64_t> first, count;
  std::vector<int32_t> values;
};

struct Size {
  int64_t rows, in, out, channels, most;
};
constexpr Size kSizes[] = {
    {1, 1, 1, 1, 1}, {15, 20, 7, 3, 4}, {33, 40, 17, 3, 9}, {70, 5, 31, 1, 3}, {64, 37, 16, 3, 6}};

TEST(PixelKernels, ResizeAsPlainLoopsDoOnEveryInstructionSet) {
  for (const Size& size : kSizes) {
    const auto [rows, in, out, channels, most] = size;
    const Resizing by(in, out, most);
    const std::vector<uint8_t> from = noise(rows * in * channels);
    std::vector<uint8_t> wanted_rows;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < out * channels; ++i) {
        wanted_rows.push_back(by.plain(from.data() + row * in * channels + i % channels, channels, i / channels));
      }
    }
    const int64_t width = rows * channels;  // the same bytes as [in, width]
    std::vector<uint8_t> wanted_columns;
    for (int64_t i = 0; i < out; ++i) {
      for (int64_t x = 0; x < width; ++x) wanted_columns.push_back(by.plain(from.data() + x, width, i));
    }
    for (const Isa isa : kIsas) {
      if (!runs(isa)) continue;
      std::vector<uint8_t> scratch(static_cast<std::size_t>((in + out) * channels * kPixelRows));
      std::vector<uint8_t> got(wanted_rows.size());
      pixel_table(isa).resize_rows(from.data(), got.data(), rows, in, out, channels, by.view(), scratch.data());
      EXPECT_EQ(got, wanted_rows) << name(isa) << " rows of " << in;
      got.assign(wanted_columns.size(), 0);
      pixel_table(isa).resize_columns(from.data(), got.data(), out, width, by.view());
      EXPECT_EQ(got, wanted_columns) << name(isa) << " columns of " << in;
    }
  }
}

TEST(PixelKernels, PlanesAreTheSameBitsOnEveryInstructionSet) {
  constexpr int64_t kPixels = 1003;
  const std::vector<uint8_t> from = noise(3 * kPixels);
  constexpr float kFactors[] = {0.013F, 0.5F, 1.0F / 255.0F};
  constexpr float kOffsets[] = {1.7F, -0.3F, 2.0F / 3.0F};
  for (const Isa isa : kIsas) {
    if (!runs(isa)) continue;
    std::vector<float> got(3 * kPixels);
    pixel_table(isa).to_planes(from.data(), got.data(), kPixels, kFactors, kOffsets);
    for (std::size_t i = 0; i < kPixels; ++i) {
      for (std::size_t c = 0; c < 3; ++c) {
        const volatile float scaled = static_cast<float>(from[3 * i + c]) * kFactors[c];  // rounded
        ASSERT_EQ(got[c * kPixels + i], scaled - kOffsets[c]) << name(isa);
      }
    }
  }
}

}  // namespace
}  // namespace cohort::kernels::pixel_kernels_test
