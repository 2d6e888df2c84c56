// Any text, as YAML, as an override and as gin, sets fields of a configuration or is refused with an error of ours;
// what a configuration then writes, another one reads.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cohort/error.h"
#include "cohort/models/config.h"
#include "tests/config/model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  cohort::testing::Described it;
  try {
    if (data[0] % 3 == 0) it.config.apply_yaml(text, "fuzz");
    if (data[0] % 3 == 1) it.config.apply_override(text);
    if (data[0] % 3 == 2) it.config.apply_gin(text);
  } catch (const cohort::Error&) {
  }
  cohort::testing::Described other;
  try {
    other.config.apply_yaml(it.config.to_yaml(), "written");
  } catch (const cohort::Error&) {
    std::abort();
  }
  if (other.config.to_yaml() != it.config.to_yaml()) std::abort();
  return 0;
}
