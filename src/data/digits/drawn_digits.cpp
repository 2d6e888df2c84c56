// Digits drawn by strokes. Pixels are written by pointers into CPU tensors.
#include <ATen/Functions.h>

#include <algorithm>

#include "cohort/data/datasets.h"
#include "data/digits/draw_digit.h"

namespace cohort::datasets {

namespace {

Dataset draw(int64_t count, uint64_t seed, uint64_t part) {
  torch::Tensor images = at::empty({count, kDigitSide, kDigitSide}, torch::kFloat);
  torch::Tensor labels = at::empty({count}, torch::kLong);
  auto* pixels = images.data_ptr<float>();
  auto* label = labels.data_ptr<int64_t>();
  Random random(seed, part);
  for (int64_t i = 0; i < count; ++i) {
    label[i] = static_cast<int64_t>(random.below(10));
    const DigitImage image = draw_digit(static_cast<int>(label[i]), random);
    std::copy(image.begin(), image.end(), pixels + i * kDigitSide * kDigitSide);
  }
  return Dataset::from_tensor_slices(images, labels);
}

}  // namespace

TrainTest drawn_digits(const DrawnDigitsOptions& options) {
  return {draw(options.train_size, options.seed, 0), draw(options.test_size, options.seed, 1)};
}

}  // namespace cohort::datasets
