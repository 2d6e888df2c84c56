// PartsBetween: layers between which an activation may stay in parts, one on each replica of a line along an axis,
// instead of being gathered and cut again: a column form, functions of single elements, a row form.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/train/layers/layer.h"

namespace cohort {

class PartsBetween {
 public:
  // What a layer does with parts of the last dimension.
  enum class Parts {
    kNone,    // it takes and gives whole activations
    kMakes,   // it can give parts
    kPasses,  // it computes each element by itself
    kTakes,   // it can take parts
  };

  virtual ~PartsBetween() = default;

  virtual Parts parts() const = 0;
  // Returns the axis along which the layer makes or takes parts.
  virtual const std::string& parts_axis() const;

 protected:
  // Returns whether a layer that makes parts is followed by one that takes them.
  bool gives_parts() const { return meets(&PartsBetween::next_, Parts::kTakes); }
  // Returns whether a layer that takes parts follows one that makes them.
  bool gets_parts() const { return meets(&PartsBetween::before_, Parts::kMakes); }

 private:
  friend void join_parts(const std::vector<std::shared_ptr<LayerModule>>& layers);

  bool meets(PartsBetween* PartsBetween::*direction, Parts wanted) const;

  PartsBetween* next_ = nullptr;
  PartsBetween* before_ = nullptr;
};

// Tells layers of a sequence what is next to them.
void join_parts(const std::vector<std::shared_ptr<LayerModule>>& layers);

}  // namespace cohort
