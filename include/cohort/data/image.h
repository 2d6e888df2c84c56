// Images: JPEG and PNG to tensors, and to other sizes.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/data/decode_options.h"

namespace cohort {

// uint8 [channels, height, width]; in memory the channels of a pixel lie together (as torch::MemoryFormat::ChannelsLast
// has them). `source` names the bytes in errors. DataLoss: truncated, damaged or no image of these kinds;
// InvalidArgument: options, or an image that is too large. Thread-safe.
torch::Tensor decode_image(std::string_view bytes, const DecodeOptions& options = {},
                           const std::string& source = "image");
// Does the same for JPEG alone.
torch::Tensor decode_jpeg(std::string_view bytes, const DecodeOptions& options = {},
                          const std::string& source = "image");
// Does the same for PNG alone.
torch::Tensor decode_png(std::string_view bytes, const DecodeOptions& options = {},
                         const std::string& source = "image");

// Returns the bytes of a PNG file. uint8 of 1 or 3 channels (InvalidArgument). Thread-safe.
std::string encode_png(const torch::Tensor& image);

// The way in which a new pixel comes from those around it.
enum class Interpolation { kBilinear, kBicubic };
struct ResizeOptions {
  Interpolation interpolation = Interpolation::kBilinear;  // the sort of interpolation
  // With true, every pixel counts where the image becomes smaller, as in PIL; with false only those beside the new ones
  // do, as in torch.nn.functional.interpolate.
  bool antialias = true;
};

// uint8 [channels, height, width] to uint8 of another size: the values of PIL's Image.resize with BILINEAR or BICUBIC,
// in its fixed-point arithmetic (Pillow, src/libImaging/Resample.c). The result's channels lie together.
// InvalidArgument: of another dtype or shape, or a size below 1. Thread-safe.
torch::Tensor resize_image(const torch::Tensor& image, int64_t height, int64_t width,
                           const ResizeOptions& options = {});

// Returns the middle of an image, a view. InvalidArgument: it is smaller than that.
torch::Tensor center_crop(const torch::Tensor& image, int64_t height, int64_t width);

}  // namespace cohort
