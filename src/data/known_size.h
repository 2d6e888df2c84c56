// Says why a dataset has no size.
#pragma once

#include <cstdint>

#include "base/fail.h"
#include "cohort/dataset.h"

namespace cohort {

// Returns a cardinality that is a number. FailedPrecondition: it is none.
inline int64_t known_size(int64_t cardinality, const char* speaker, const char* what) {
  if (cardinality >= 0) return cardinality;
  if (cardinality == kInfiniteCardinality) {
    fail<FailedPrecondition>("[data] size: the ", speaker, " never ends; a number of ", what, " was wanted");
  }
  fail<FailedPrecondition>("[data] size: the ", what, " of the ", speaker,
                           " are known only when they are read; a number of them was wanted. cardinality() tells "
                           "whether there is one");
}

}  // namespace cohort
