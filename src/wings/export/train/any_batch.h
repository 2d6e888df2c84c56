// The size of the batch in a traced graph. LibTorch's tracer takes sizes, which are numbers in C++, for constants.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace cohort::exports {

// The dimensions of tensors whose sizes depend on the batch.
using BatchDims = std::unordered_map<const torch::jit::Value*, std::vector<bool>>;

// Makes a graph that was traced with a batch of size `batch` one for batches of any size. `other` is the same model
// traced with a batch of size `other_batch`: a number that differs between the two depends on the size.
// InvalidArgument: the two have other operations, or a number is no linear function of the size. `speaker` opens
// messages.
BatchDims take_any_batch(const std::string& speaker, torch::jit::Graph& graph, int64_t batch,
                         const torch::jit::Graph& other, int64_t other_batch);

}  // namespace cohort::exports
