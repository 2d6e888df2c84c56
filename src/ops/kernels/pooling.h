// The kernels of kernels.h for the pooling of images, to which the same holds.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "ops/kernels/pool_shape.h"

namespace cohort::kernels {

// Windows have at most so many elements, and an element of the image at least.
constexpr int64_t kLargestPool = 256;

// Computes y = bias + the largest element of each window, or max(that, 0), of one image. `places` gets where in its
// window each of these lies, the first of equal ones; a NaN counts as the largest. y and places are
// [windows_down, windows_across, channels], the bias has an element a channel; null: there is none.
void max_pool(void* y, uint8_t* places, const void* image, const void* bias, const PoolShape& shape, bool relu,
              c10::ScalarType dtype);

// The gradients of max_pool: by the image, `dst`, and by the bias, `sums`. With `y`, its result with ReLU, the gradient
// counts where y > 0; without (null) everywhere.
void max_pool_gradient(void* dst, void* sums, const void* gradient, const void* y, const uint8_t* places,
                       const PoolShape& shape, c10::ScalarType dtype);

}  // namespace cohort::kernels
