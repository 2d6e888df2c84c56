// The error of an operation that does not support its tensors.
#pragma once

#include "cohort/error.h"

namespace cohort {

// Sequential catches it and adds the name of the layer.
class OperationRefused : public Unimplemented {
 public:
  using Unimplemented::Unimplemented;
};

}  // namespace cohort
