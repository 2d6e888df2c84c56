// The checks that all operations on images make.
#pragma once

#include <torch/types.h>

#include "base/fail.h"

namespace cohort::images {

// InvalidArgument: it is not [channels, height, width], or has no pixels.
inline void require_image(const char* what, const torch::Tensor& image) {
  if (image.defined() && image.dim() == 3 && image.numel() > 0) return;
  fail<InvalidArgument>("[image] ", what, ": wanted [channels, height, width], got ",
                        image.defined() ? c10::str(image.sizes()) : std::string("an undefined tensor"));
}

}  // namespace cohort::images
