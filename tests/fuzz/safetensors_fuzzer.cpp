// Any bytes either parse as safetensors or are refused with an error of ours; what parses has the size that it says.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "checkpoint/safetensors.h"
#include "cohort/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    const cohort::Weights weights = cohort::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz");
    std::size_t total = 0;
    for (const auto& [name, tensor] : weights.tensors) total += tensor.nbytes();
    if (total > size) std::abort();
  } catch (const cohort::Error&) {
  }
  return 0;
}
