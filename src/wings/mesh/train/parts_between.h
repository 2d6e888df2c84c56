// PartsBetween: layers between which an activation may stay in parts, one on each replica of a line along an axis,
// instead of being gathered and cut again: a column form, functions of single elements or channels, a row form.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/train/layers/layer.h"
#include "train/layers/leaves_parts.h"

namespace cohort {

class PartsBetween : public LeavesParts {
 public:
  // What a layer does with parts of a dimension.
  enum class Parts {
    kNone,            // it takes and gives whole activations
    kMakes,           // it can give parts
    kPasses,          // it computes each element by itself
    kPassesChannels,  // it computes each channel, dimension 1, by itself: with parts of them, it gives parts of them
    kTakes,           // it can take parts
  };

  virtual Parts parts() const = 0;
  // Returns the axis along which the layer makes or takes parts; of one that passes them the only one, empty for any.
  virtual const std::string& parts_axis() const;
  // Returns the dimension that a layer which makes or takes parts has in parts.
  virtual int64_t parts_dim() const;
  // To be called for the last layer of a model.
  void leave_parts() override { ends_ = true; }

 protected:
  // Returns whether a layer that makes parts is followed by one that takes them.
  bool gives_parts() const { return parts() == Parts::kMakes && meets(&PartsBetween::next_, Parts::kTakes); }
  // Returns what a layer that can give parts gives: them, a divided tensor that has them, or the whole.
  torch::Tensor given(const torch::Tensor& part) const;
  // Returns whether a layer that takes parts follows one that makes them.
  bool gets_parts() const { return parts() == Parts::kTakes && meets(&PartsBetween::before_, Parts::kMakes); }
  // Returns the layer that makes the parts which a layer between is given; null if it is given whole activations.
  const PartsBetween* passed_from() const;

 private:
  friend void join_parts(const std::vector<std::shared_ptr<LayerModule>>& layers);

  bool passes() const { return parts() == Parts::kPasses || parts() == Parts::kPassesChannels; }
  bool passes_those_of(const PartsBetween& end) const;
  bool meets(PartsBetween* PartsBetween::*direction, Parts wanted) const;

  bool ends_ = false;  // nothing follows but what takes divided tensors
  PartsBetween* next_ = nullptr;
  PartsBetween* before_ = nullptr;
};

// Tells layers of a sequence what is next to them.
void join_parts(const std::vector<std::shared_ptr<LayerModule>>& layers);

}  // namespace cohort
