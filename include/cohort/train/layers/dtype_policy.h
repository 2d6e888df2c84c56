// Layers that compute in half precision.
#pragma once

#include "cohort/train/layers/layer.h"

namespace cohort {

// Keras' dtype policies for single layers.
enum class DTypePolicy {
  kMixedFloat16,   // computes in float16; parameters are the model's
  kMixedBFloat16,  // computes in bfloat16; parameters are the model's
  kFloat16,        // float16 throughout; for layers that do not learn
  kBFloat16,       // bfloat16 throughout; for layers that do not learn
};

// Makes of a layer one in half precision, with the same name and parameters of the same names. Its inputs and outputs,
// and the gradients on their way back, are rounded to the half type, beyond whose range they are infinite. Products are
// computed in it on devices that train in it (CUDA, XLA; CPUs in bfloat16), else in the model's dtype. A
// BatchNormalization computes in the model's dtype, as in Keras. Small gradients want LossScaleOptimizer().
// InvalidArgument: the layer learns, and the policy is kFloat16 or kBFloat16; also when it is thawed later.
Layer WithPolicy(const Layer& layer, DTypePolicy policy);

}  // namespace cohort
