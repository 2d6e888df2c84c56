// Images: JPEG and PNG to tensors, and to other sizes.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort {

struct DecodeOptions {
  // 3: RGB, 1: grey, 0: grey where the file is, else RGB. CMYK becomes RGB; transparency is left out.
  int channels = 3;
  // JPEG only: it may be decoded at 1/2, 1/4 or 1/8 of its size, which is faster, as long as both sides are still at
  // least so long. 0: at its own size.
  int64_t at_least = 0;
  // JPEG only: turned upright as the camera's note (EXIF) says.
  bool upright = true;
  // The most pixels that a file may have; more are refused before memory is taken for them.
  int64_t most_pixels = int64_t{1} << 27;
};

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
