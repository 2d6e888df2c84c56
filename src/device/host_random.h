// Random numbers of the host, which data and initial values are drawn from whatever the replicas compute on.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>

namespace cohort {

// Returns LibTorch's own generator of the host, which torch::manual_seed() seeds.
at::Generator host_generator();

// Makes a generator of the host's with that seed. Cheap enough for one an example.
at::Generator make_host_generator(uint64_t seed);

}  // namespace cohort
