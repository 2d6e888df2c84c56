// The units of a module's parameters that replicas share: what is gathered, and freed, at once.
#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace cohort {

// Returns the unit of each trainable parameter, by tensor_id(); units have the numbers 0 to n - 1 in the order of
// named_parameters(). They are what a module names (ShardingUnits), the layers of a Sequential and the children of
// plain containers, whatever these have inside, and elsewhere modules without children. A container of a single layer
// with parameters counts as that layer. Neighbours of less than `min_bytes` are put together. A tied parameter belongs
// to the first unit that has it. NotFound: a module names a child that it does not have.
std::unordered_map<const void*, std::size_t> parameter_units(const torch::nn::Module& root, int64_t min_bytes);

}  // namespace cohort
