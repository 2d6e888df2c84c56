// Attention between positions of which each replica of a line has some.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

namespace cohort::space {

// softmax(query key^T scale) value. All tensors are [examples, heads, steps, size]; the query is divided along its
// steps, key and value may be. Their steps may be others than those of the query. A query that sees no key gets zeros.
struct AttentionArgs {
  torch::Tensor query, key, value;
  std::string who;  // the layer, for messages
  double scale = 1.0;
  bool causal = false;  // a query sees the keys of its position and before
  // What is seen, each of bool and [examples or 1, heads or 1, queries or 1, keys or 1], divided or whole.
  std::vector<torch::Tensor> masks = {};
  double dropout = 0.0;  // the part of the weights that is dropped
};

// Returns the result, divided as the query is, by the way that MeshOptions::attention says. In autocast it is computed
// in its half type. To be called in run(), by all replicas of the line. Unimplemented: the query is cut along another
// dimension than its steps, or a mask along another than these; weights are to be dropped in a ring. InvalidArgument:
// the heads do not divide by the size of the line (SequenceAttention::kUlysses).
torch::Tensor attend(const AttentionArgs& args);

}  // namespace cohort::space
