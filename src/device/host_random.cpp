#include "device/host_random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <torch/types.h>

namespace cohort {

at::Generator host_generator() {
  return at::globalContext().defaultGenerator(torch::kCPU);
}

at::Generator make_host_generator(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

}  // namespace cohort
