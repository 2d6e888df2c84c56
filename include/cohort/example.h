// Example: what a dataset yields and a training step consumes.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace cohort {

// One example, or after batch() one batch of them (then every defined tensor has the batch as dimension 0).
// A field that a dataset does not use is an undefined tensor. Cheap to copy: tensors are handles.
struct Example {
  torch::Tensor x;                  // input
  torch::Tensor y;                  // target
  torch::Tensor weight;             // weight of the example in losses and metrics; undefined: 1
  std::vector<torch::Tensor> more;  // further columns, of zip() and of the user's own readers

  // Examples in a batched value: size of dimension 0 of x. Undefined x or a scalar: InvalidArgument.
  int64_t size() const;

  // This example on another device; asynchronous from pinned memory.
  Example to(torch::Device device) const;

  // Rows [begin, end) of every column, as views.
  Example rows(int64_t begin, int64_t end) const;
};

}  // namespace cohort
