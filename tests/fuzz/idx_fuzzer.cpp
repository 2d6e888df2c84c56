// Any bytes either parse as IDX or are refused with an error of ours; nothing else happens.
#include <cstddef>
#include <cstdint>
#include <span>

#include "cohort/error.h"
#include "data/readers/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    cohort::parse_idx(std::as_bytes(std::span(data, size)), "fuzz");
  } catch (const cohort::Error&) {
  }
  return 0;
}
