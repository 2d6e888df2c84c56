// The operations of tf.image with TensorFlow's numbers, as functions on tensors and, with on_x(), as maps of a Dataset.
//
//   train.map(on_x([](const torch::Tensor& x) { return image::resize(x, 224, 224); }))
//       .random_map(on_x(image::random_flip_left_right));
//
// Pictures lie as TensorFlow has them: [height, width, channels], or batches [batch, height, width, channels]. The
// functions of cohort/data/image.h and augment.h, whose numbers are Pillow's and torchvision's, take [channels, height,
// width]: permute({2, 0, 1}) and permute({1, 2, 0}) are the ways between. Integers stand for the fractions of their
// largest value where TensorFlow takes them so. A shape, a size or an option that does not fit is InvalidArgument. A
// generator may be used by one thread at a time, everything else is thread-safe.
#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <utility>

#include "cohort/example.h"

namespace cohort {

// Makes a function of pictures one of examples, for Dataset::map and, where it takes a generator, Dataset::random_map:
// it is applied to x.
template <typename Function>
auto on_x(Function function) {
  return [function = std::move(function)]<typename... Generator>(
      Example example,
      Generator... generator) requires std::invocable<const Function&, const torch::Tensor&, Generator...> {
    example.x = function(example.x, generator...);
    return example;
  };
}

namespace image {

// The way in which a new pixel comes from those around it (tf.image.ResizeMethod).
enum class ResizeMethod { kBilinear, kNearest, kBicubic, kArea, kLanczos3, kLanczos5, kGaussian, kMitchellCubic };
struct ResizeOptions {
  ResizeMethod method = ResizeMethod::kBilinear;  // the sort of interpolation
  // Widens the kernel where the image becomes smaller, so that every pixel counts. It changes nothing for kNearest
  // and kArea, as in TensorFlow.
  bool antialias = false;
  bool preserve_aspect_ratio = false;  // takes the largest size within the one that was asked for
};
// Gives images another size, as float32. With kNearest, and where the size is theirs already, the dtype stays.
torch::Tensor resize(const torch::Tensor& images, int64_t height, int64_t width, const ResizeOptions& options = {});
// The same without distortion: what is left of the size is filled with zeros on both sides.
torch::Tensor resize_with_pad(const torch::Tensor& images, int64_t height, int64_t width,
                              const ResizeOptions& options = {});
// Cuts the middle out, or puts zeros around, until the size fits.
torch::Tensor resize_with_crop_or_pad(const torch::Tensor& images, int64_t height, int64_t width);
// Returns a part, as a view.
torch::Tensor crop_to_bounding_box(const torch::Tensor& images, int64_t top, int64_t left, int64_t height,
                                   int64_t width);
// Puts the images at this place of larger ones that are zero elsewhere.
torch::Tensor pad_to_bounding_box(const torch::Tensor& images, int64_t top, int64_t left, int64_t height,
                                  int64_t width);
// Returns the middle part that has `fraction` of each side, in (0, 1], as a view.
torch::Tensor central_crop(const torch::Tensor& images, double fraction);

struct CropAndResizeOptions {
  ResizeMethod method = ResizeMethod::kBilinear;  // or kNearest
  double extrapolation_value = 0.0;               // the pixels of a box that lie outside its image
};
// Cuts boxes [n, 4] (top, left, bottom, right as fractions of height - 1 and width - 1) out of the images of a batch
// that box_indices [n] names, and resizes them: float32 [n, height, width, channels].
torch::Tensor crop_and_resize(const torch::Tensor& images, const torch::Tensor& boxes, const torch::Tensor& box_indices,
                              int64_t height, int64_t width, const CropAndResizeOptions& options = {});

// Mirrors left and right.
torch::Tensor flip_left_right(const torch::Tensor& images);
// Mirrors top and bottom.
torch::Tensor flip_up_down(const torch::Tensor& images);
// Swaps rows and columns.
torch::Tensor transpose(const torch::Tensor& images);
// Turns by 90 degrees counter-clockwise, `times` times.
torch::Tensor rot90(const torch::Tensor& images, int64_t times = 1);

// Converts the dtype and the range that goes with it: [0, 1] of floating-point numbers is [0, largest] of integers.
// With saturate values outside the range of integers are cut off first.
torch::Tensor convert_image_dtype(const torch::Tensor& images, torch::ScalarType dtype, bool saturate = false);
// Adds delta, where 1 is the whole range.
torch::Tensor adjust_brightness(const torch::Tensor& images, double delta);
// Multiplies the distance from the mean of each image's channel.
torch::Tensor adjust_contrast(const torch::Tensor& images, double factor);
// Multiplies the saturation of colours (3 channels).
torch::Tensor adjust_saturation(const torch::Tensor& images, double factor);
// Turns the circle of colours by delta, in [-1, 1], of a turn (3 channels).
torch::Tensor adjust_hue(const torch::Tensor& images, double delta);
// Returns gain * images ^ gamma.
torch::Tensor adjust_gamma(const torch::Tensor& images, double gamma = 1.0, double gain = 1.0);
// Returns the brightness of colours: [..., 3] to [..., 1].
torch::Tensor rgb_to_grayscale(const torch::Tensor& images);
// Repeats the one channel three times.
torch::Tensor grayscale_to_rgb(const torch::Tensor& images);
// Converts colours from 0 to 1 to hue, saturation and value, each from 0 to 1 (floating point, 3 channels).
torch::Tensor rgb_to_hsv(const torch::Tensor& images);
// Converts hue, saturation and value back.
torch::Tensor hsv_to_rgb(const torch::Tensor& images);
// Gives each image a mean of 0 and a deviation of 1, as float32; an even image becomes zeros.
torch::Tensor per_image_standardization(const torch::Tensor& images);

// Mirrors left and right with probability 1/2, each image of a batch by itself.
torch::Tensor random_flip_left_right(const torch::Tensor& images, at::Generator generator);
// Mirrors top and bottom with probability 1/2, each image of a batch by itself.
torch::Tensor random_flip_up_down(const torch::Tensor& images, at::Generator generator);
// Adjusts the brightness by a number from -largest_delta to largest_delta.
torch::Tensor random_brightness(const torch::Tensor& images, double largest_delta, at::Generator generator);
// Adjusts the contrast by a factor from `lower` to `upper`.
torch::Tensor random_contrast(const torch::Tensor& images, double lower, double upper, at::Generator generator);
// Adjusts the saturation by a factor from `lower` to `upper`.
torch::Tensor random_saturation(const torch::Tensor& images, double lower, double upper, at::Generator generator);
// Turns the hue by a part of the circle from -largest_delta to largest_delta, at most 0.5.
torch::Tensor random_hue(const torch::Tensor& images, double largest_delta, at::Generator generator);
// Returns a part of this size from anywhere, as a view, the same place for all images of a batch.
torch::Tensor random_crop(const torch::Tensor& images, int64_t height, int64_t width, at::Generator generator);

}  // namespace image

namespace imagenet_utils {

// The values that a pre-trained network of Keras wants: blue, green and red less their means (kCaffe); from -1 to 1
// (kTf); from 0 to 1, then normalised by ImageNet's mean and deviation (kTorch).
enum class PreprocessMode { kCaffe, kTf, kTorch };
// The place of the channels among the dimensions: the last one, or the one before height and width.
enum class DataFormat { kChannelsLast, kChannelsFirst };
// Converts pixels from 0 to 255 of three channels to what the network wants, as floating point
// (keras.applications.imagenet_utils.preprocess_input).
torch::Tensor preprocess_input(const torch::Tensor& images, PreprocessMode mode = PreprocessMode::kCaffe,
                               DataFormat data_format = DataFormat::kChannelsLast);

}  // namespace imagenet_utils

}  // namespace cohort
