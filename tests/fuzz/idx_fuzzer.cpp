// Any bytes, plain or gzip, either parse as IDX or are refused with an error of ours; a tensor has the size that the
// bytes say.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "cohort/error.h"
#include "data/readers/gzip.h"
#include "data/readers/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    const std::string bytes = cohort::inflate_if_gzip(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    const torch::Tensor tensor = cohort::parse_idx(std::as_bytes(std::span(bytes)), "fuzz");
    if (tensor.nbytes() + 4 + 4 * static_cast<std::size_t>(tensor.dim()) != bytes.size()) std::abort();
  } catch (const cohort::Error&) {
  }
  return 0;
}
