// DeviceImages: pictures that travel to the devices as bytes, a quarter of what their floating-point planes take, and
// are cropped, flipped and normalised there (DALI's crop_mirror_normalize).
//
//   const DeviceImages images({.crop = DeviceCrop{32, 32, {.padding = 4}},
//                              .flip_probability = 0.5,
//                              .mean = {0.491, 0.482, 0.447},
//                              .deviation = {0.247, 0.243, 0.262}});
//   const Dataset batches = images.finish(train.random_map(images).batch(128)).prefetch();
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/data/augment.h"
#include "cohort/dataset.h"

namespace cohort {

class PictureMap;

// A part of a picture from anywhere, as random_crop() takes it.
struct DeviceCrop {
  int64_t height = 0;              // pixels of the part
  int64_t width = 0;               // pixels of the part
  RandomCropOptions options = {};  // the padding around the picture
};

struct DeviceImageOptions {
  // The part that is taken of each picture. Unset: the picture as it is.
  std::optional<DeviceCrop> crop = std::nullopt;
  // Probability of a flip left to right. Unset: no picture is flipped, and no number drawn for it.
  std::optional<double> flip_probability = std::nullopt;
  // Mean of each of 1 to 16 channels, whose values count from 0 to 1.
  std::vector<double> mean = {};
  // Standard deviation of each channel.
  std::vector<double> deviation = {};
  // The dtype of the result: float32, or what that is rounded to.
  torch::ScalarType dtype = torch::kFloat;
  // Pictures of one channel become [height, width].
  bool planes = false;
};

// The changes of random_crop(), random_horizontal_flip() and normalize(), in this order and to the same bits. Their
// random numbers are drawn where the pipeline runs, by the generator of each picture, as those functions draw them; the
// pixels are changed by one kernel on the device that takes a batch. A cheap value, thread-safe.
class DeviceImages {
 public:
  // InvalidArgument: options that do not fit together.
  explicit DeviceImages(const DeviceImageOptions& options);

  // Draws for a picture, for Dataset::random_map(): x, uint8 [channels, height, width], becomes contiguous, and the
  // numbers come behind the columns of `more`, where batch() takes them along. InvalidArgument: a picture that has no
  // such part.
  Example operator()(Example example, at::Generator generator) const;

  // Returns the batches with their pictures changed: x, uint8 [examples, channels, height, width], becomes what the
  // options say, and the numbers of operator() are gone; options without a crop and a flip want none. Where a strategy
  // distributes the batches (Strategy::distribute(), Model::fit()) each share is changed on its replica's device,
  // beside its computing: by a kernel on GPUs and CPUs, by LibTorch's operations on GPUs in a build without kernels for
  // them; for devices that record, such as TPUs, by the host before it travels. Of further transformations only
  // prefetch(), repeat(), take() and skip() leave it so; behind others, and without a strategy, the host changes the
  // batches. InvalidArgument, when a batch comes: it has not what is wanted.
  Dataset finish(const Dataset& batches) const;

 private:
  std::shared_ptr<const PictureMap> map_;
};

}  // namespace cohort
