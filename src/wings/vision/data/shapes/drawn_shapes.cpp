// Shapes with their masks. Pixels are written by pointers into CPU tensors.
#include <ATen/Functions.h>

#include <algorithm>

#include "base/fail.h"
#include "cohort/data/datasets.h"
#include "wings/vision/data/shapes/draw_shapes.h"

namespace cohort::datasets {

namespace {

Dataset draw(int64_t count, const DrawnShapesOptions& options, uint64_t part) {
  torch::Tensor images = at::empty({count, 3, options.height, options.width}, torch::kByte);
  torch::Tensor masks = at::empty({count, options.height, options.width}, torch::kLong);
  auto* pixels = images.data_ptr<uint8_t>();
  auto* labels = masks.data_ptr<int64_t>();
  Random random(options.seed, part);
  for (int64_t i = 0; i < count; ++i) {
    const ShapesPicture picture =
        draw_shapes(static_cast<int>(options.height), static_cast<int>(options.width), random);
    pixels = std::copy(picture.pixels.begin(), picture.pixels.end(), pixels);
    labels = std::copy(picture.labels.begin(), picture.labels.end(), labels);
  }
  return Dataset::from_tensor_slices(images, masks);
}

}  // namespace

TrainTest drawn_shapes(const DrawnShapesOptions& options) {
  constexpr int64_t kLargest = 4096;
  for (const int64_t side : {options.height, options.width}) {
    if (side >= 1 && side <= kLargest) continue;
    fail<InvalidArgument>("[data] drawn_shapes: pictures of ", options.height, " x ", options.width, ", wanted 1 to ",
                          kLargest, " pixels a side");
  }
  return {draw(options.train_size, options, 0), draw(options.test_size, options, 1)};
}

}  // namespace cohort::datasets
