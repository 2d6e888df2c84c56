// The kernels that are not a row of the table: they make tensors, copy them, read them, or draw random numbers.
#pragma once

#include <torch/library.h>

#include <functional>

namespace cohort::record {

// Registers them for the dispatch key XLA.
void register_kernels(torch::Library& aten);
// Registers those that draw random numbers (random.cpp) and those with more than one result in place (statistics.cpp).
void register_random(torch::Library& aten);
void register_statistics(torch::Library& aten);

// Opens the library of a namespace for a dispatch key, which lives as long as the process.
using OpenLibrary = std::function<torch::Library&(const char* ns, c10::DispatchKey key)>;
// Registers the rules of autocast (autocast.cpp).
void register_autocast(const OpenLibrary& open);

}  // namespace cohort::record
