// Attention in one kernel, which keeps no scores: on GPUs it takes memory for the tokens instead of for their pairs.
// And what all forms of attention do about queries that see no key.
#pragma once

#include <torch/types.h>

namespace cohort {

// Returns whether LibTorch has such a kernel where the tensor is: on GPUs, from 2.1 on. Tensors of which replicas have
// parts have none.
bool fuses_attention(const torch::Tensor& query);

// Returns softmax(query key^T / sqrt(size) + added) value; to be called where fuses_attention() says so. All are
// [examples, heads, steps, size]; `added` is undefined or broadcasts to the scores, in the dtype of the query, and with
// `causal` it is undefined: each step sees itself and those before.
torch::Tensor fused_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                              const torch::Tensor& added = {}, bool causal = false);

// Returns which queries see no key, of bool and to be broadcast to [examples, heads, steps, size]. `hidden` is of bool
// and broadcasts to the scores. The result of attention is zeros there, as with LibTorch from 2.5 on.
torch::Tensor blind_queries(const torch::Tensor& hidden);

}  // namespace cohort
