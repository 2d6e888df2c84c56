#include "cohort/update_rules.h"

#include "base/fail.h"

namespace cohort {

PrecisionPolicy parse_precision(std::string_view name) {
  if (name.empty() || name == "float32") return PrecisionPolicy::kFloat32;
  if (name == "float16" || name == "mixed_float16") return PrecisionPolicy::kMixedFloat16;
  if (name == "bfloat16" || name == "mixed_bfloat16") return PrecisionPolicy::kMixedBFloat16;
  fail<InvalidArgument>("[precision] \"", name, "\" is not known; float32, mixed_float16 and mixed_bfloat16 are");
}

}  // namespace cohort
