// The parts that WithPolicy was made of.
#pragma once

#include "cohort/train/layers/dtype_policy.h"

namespace cohort {

struct DTypePolicyParts {
  Layer layer;
  DTypePolicy policy;
};

}  // namespace cohort
