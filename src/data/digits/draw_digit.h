// Draws the images of digits.
#pragma once

#include <array>
#include <cstddef>

#include "data/random.h"

namespace cohort::datasets {

constexpr int kDigitSide = 28;
using DigitImage = std::array<float, static_cast<std::size_t>(kDigitSide) * kDigitSide>;  // 0 is paper, 1 is ink

// Draws the digit, 0 to 9, turned, slanted, stretched and shifted at random, with stray marks and noise.
DigitImage draw_digit(int digit, Random& random);

}  // namespace cohort::datasets
