// Mixed precision: what is computed in half, while variables stay float32.
#pragma once

#include <cstdint>
#include <string_view>

namespace cohort {

// The policies of Keras. In the mixed ones the forward pass runs under LibTorch's autocast: convolutions and matrix
// products are computed in the half type, sums, losses and the like in float32; the model's output is float32.
enum class PrecisionPolicy {
  kFloat32,
  kMixedFloat16,   // float16 on GPUs and on XLA's devices, with loss scaling
  kMixedBFloat16,  // bfloat16 there, and on CPUs, where it pays with AVX512_BF16 or AMX
};

// "float32", "mixed_float16", "mixed_bfloat16", and Model Garden's "float16", "bfloat16" and "". InvalidArgument:
// others.
PrecisionPolicy parse_precision(std::string_view name);

// The loss is multiplied before backward, and the gradients divided afterwards, so that small ones do not vanish in
// float16. A step whose gradients, summed over all replicas, are not finite is left out on all of them. Source: P.
// Micikevicius et al., "Mixed Precision Training" (2018); defaults are TensorFlow's LossScaleOptimizer's.
struct LossScale {
  double initial_scale = 32768.0;  // a positive number
  // Halved after a step that was left out, and doubled after so many in a row that were not. With false,
  // it stays.
  bool dynamic = true;
  int64_t growth_steps = 2000;  // steps in a row after which the scale is doubled
};

}  // namespace cohort
