// The interface of recurrent layers that Bidirectional needs.
#pragma once

#include <memory>

#include "cohort/train/layers/layer.h"

namespace cohort {

// A layer that runs over the steps of a sequence.
class RecurrentKind : public LayerKind {
 public:
  // Returns the same layer in the other direction.
  virtual std::shared_ptr<const RecurrentKind> reversed() const = 0;
  // Returns the same layer whose output is zeros at the steps that do not count.
  virtual std::shared_ptr<const RecurrentKind> zero_where_masked() const = 0;
  // Returns whether the output has all steps instead of the last one.
  virtual bool returns_sequences() const = 0;
};

}  // namespace cohort
