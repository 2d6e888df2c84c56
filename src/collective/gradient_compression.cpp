#include "collective/gradient_compression.h"

#include "base/extension_table.h"
#include "base/fail.h"

namespace cohort {

namespace {

// The compressions of the core, and the places of those of wings.
constexpr GradientCompression kCompressions[] = {{.name = "none"},
                                                 {.name = "bfloat16", .dtype = torch::kBFloat16},
                                                 {.name = "float16", .dtype = torch::kHalf},
                                                 {.name = "power_sgd", .wing = "comm_hooks"}};

}  // namespace

std::vector<const GradientCompression*> gradient_compressions() {
  return with_extensions(kCompressions);
}

const GradientCompression& gradient_compression(std::string_view name) {
  const std::vector<const GradientCompression*> rows = gradient_compressions();
  std::string known;
  for (const GradientCompression* row : rows) {
    if (row->name == name && row->wing.empty()) return *row;
    if (row->name == name) fail_without(row->wing, "[collective] gradient_compression is \"", name, "\"");
    known += c10::str(known.empty() ? "" : row == rows.back() ? " or " : ", ", row->name);
  }
  fail<InvalidArgument>("[collective] gradient_compression is \"", name, "\", wanted ", known);
}

}  // namespace cohort
