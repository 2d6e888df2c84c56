// The declarations that the decoders share.
#pragma once

#include <string>

#include "cohort/data/image.h"

namespace cohort::images {

// InvalidArgument: the options are wrong, or the image is larger than they allow.
void check_options(const DecodeOptions& options);
void check_size(int64_t height, int64_t width, const DecodeOptions& options, const std::string& source);

// Returns whether the bytes begin as such a file does.
bool is_jpeg(std::string_view bytes);
bool is_png(std::string_view bytes);

// Returns 1 to 8, from a JPEG's EXIF block (what follows the APP1 marker); 1, upright, where it does not say.
int orientation_in(std::string_view exif);
// Returns the image, uint8 [channels, height, width], turned so that it is upright.
torch::Tensor turn_upright(const torch::Tensor& image, int orientation);

}  // namespace cohort::images
