// The kernels of kernels.h for dense layers whose product comes transposed, to which the same holds.
#pragma once

#include "base/kernels/kernels.h"

namespace cohort::kernels {

// Computes y = product^T + bias, or max(that, 0): the product has a contiguous row of `size.rows` elements for each of
// the columns of y.
void add_bias_of_transposed(void* y, const void* product, const void* bias, const Columns& size, bool relu,
                            c10::ScalarType dtype);

}  // namespace cohort::kernels
