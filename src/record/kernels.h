// The kernels that are not a row of the table: they make tensors, copy them, read them, or draw random numbers.
#pragma once

#include <torch/library.h>

namespace cohort::record {

// Registers them for the dispatch key XLA.
void register_kernels(torch::Library& aten);
// Registers those that draw random numbers (random.cpp) and those with more than one result in place (statistics.cpp).
void register_random(torch::Library& aten);
void register_statistics(torch::Library& aten);

}  // namespace cohort::record
