// Any text either is a manifest, which comes back the same from what it is written as, or is refused with an error of
// ours.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/manifest.h"
#include "cohort/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    const auto manifest = cohort::parse_manifest({reinterpret_cast<const char*>(data), size}, "fuzz");
    const std::string text = cohort::to_json(manifest);
    if (cohort::to_json(cohort::parse_manifest(text, "fuzz")) != text) std::abort();
  } catch (const cohort::Error&) {
  }
  return 0;
}
