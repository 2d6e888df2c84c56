// An operation that cannot be done with the tensors that it got.
#pragma once

#include "cohort/error.h"

namespace cohort {

// Who runs a list of layers catches it, and names the layer.
class OperationRefused : public Unimplemented {
 public:
  using Unimplemented::Unimplemented;
};

}  // namespace cohort
