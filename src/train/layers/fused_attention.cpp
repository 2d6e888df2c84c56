#include "train/layers/fused_attention.h"

#include "base/libtorch_compat.h"
#include "device/backend.h"
#include "strategy/divided.h"

namespace cohort {

bool fuses_attention(const torch::Tensor& query) {
  return !is_divided(query) && backend_of(query.device()).fuses_attention();
}

torch::Tensor fused_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                              const torch::Tensor& added, bool causal) {
  return compat::fused_attention(query, key, value, added, causal);
}

torch::Tensor blind_queries(const torch::Tensor& hidden) {
  return hidden.all(-1, /*keepdim=*/true);
}

}  // namespace cohort
