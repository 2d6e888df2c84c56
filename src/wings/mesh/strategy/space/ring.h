// Attention block by block: the keys and values travel around a line while each replica's own queries attend to them.
#pragma once

#include <torch/types.h>

#include <vector>

#include "cohort/communicator.h"
#include "wings/mesh/strategy/space/ranges.h"

namespace cohort::space {

// Which positions a replica has, and what they may see.
struct Ring {
  Communicator* line = nullptr;  // null: this replica has all keys
  std::vector<int> ranks = {0};  // those of the parts, in their order
  std::size_t position = 0;      // this replica's part
  std::vector<Range> queries;    // the positions of each part, which may be none
  std::vector<Range> keys;
  double scale = 1.0;
  bool causal = false;  // a query sees the keys of its position and before
  // What is seen, each of bool and [examples or 1, heads or 1, own queries or 1, all keys or 1].
  std::vector<torch::Tensor> masks = {};
  // Factors of the weights, [examples, heads, own queries, all keys], such as those of dropout; undefined: 1.
  torch::Tensor factors = {};
};

// Returns softmax(query key^T scale) value for the own queries and all keys: [examples, heads, own queries, size]. A
// query that sees no key gets zeros, and gives no gradients.
// `query`, `key` and `value` are the own parts, [examples, heads, own positions, size]. No more than a tile of the
// scores exists at a time. Scores and sums of half types are float32. Every replica of the line calls it, and its
// backward. The keys and values go from each replica to the next one until all that attend to them have had them;
// backward computes the scores again from the logarithms of the softmax's sums, while the gradients of keys and values
// travel with these (H. Liu et al., "Ring Attention with Blockwise Transformers", arXiv:2310.01889; the sums are those
// of M. Milakov and N. Gimelshein, arXiv:1805.02867). Unimplemented, in backward: second derivatives.
torch::Tensor ring_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                             const Ring& ring);

}  // namespace cohort::space
