// Example: the element that a dataset yields and a training step consumes.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cohort {

// Tensors with their names, in an order that is kept.
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// One example, or after batch() one batch of them (then every defined tensor has the batch as dimension 0).
// A field that a dataset does not use is an undefined tensor or an empty list. Cheap to copy: tensors are handles.
//
//   Example{.x = image, .y = label}                                               // one input, one target
//   Example{.inputs = {{"image", a}, {"meta", b}}, .targets = {{"class", c}, {"box", d}}}
struct Example {
  torch::Tensor x;                  // input
  torch::Tensor y;                  // target
  torch::Tensor weight;             // weight of the example in losses and metrics of every output; undefined: 1
  torch::Tensor mask;               // the parts of the example that count, in those of every output; undefined: all
  std::vector<torch::Tensor> more;  // further columns, of zip() and of the user's own readers
  NamedTensors inputs;              // in place of x: several inputs, or inputs by name
  NamedTensors targets;             // in place of y: targets by the names of a model's outputs
  NamedTensors weights;             // weights for the losses and metrics of single outputs, by their names
  NamedTensors masks;               // masks for those of single outputs, by their names

  // Returns x, or the first of the named inputs where there is no x; undefined without either.
  const torch::Tensor& input() const;

  // Returns the number of examples in a batch: the size of dimension 0 of input(). Without an input, or if that is a
  // scalar: InvalidArgument.
  int64_t size() const;

  // Returns this example on another device. The copy is asynchronous from pinned memory.
  Example to(torch::Device device) const;

  // Returns rows [begin, end) of every column, as views.
  Example rows(int64_t begin, int64_t end) const;
};

}  // namespace cohort
