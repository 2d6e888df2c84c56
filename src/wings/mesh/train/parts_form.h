// PartsForm: forms of layers between which an activation may stay in parts, one on each replica of a line along an
// axis, instead of being gathered and cut again: a column form, functions of single elements or channels, a row form.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <string>

#include "cohort/topology.h"
#include "train/layers/layer_form.h"

namespace cohort {

class PartsForm : public LayerForm {
 public:
  // The ways in which a layer treats parts of a dimension.
  enum class Parts {
    kNone,            // it takes and gives whole activations
    kMakes,           // it can give parts
    kPasses,          // it computes each element by itself
    kPassesChannels,  // it computes each channel, dimension 1, by itself: with parts of them, it gives parts of them
    kTakes,           // it can take parts
  };

  // The axis along which the layer has parts, the size of the axis, and the dimension of activations that is in parts.
  PartsForm(const Topology& topology, std::string axis, int64_t dim = 1)
      : axis_(std::move(axis)), size_(topology.axis(axis_).size), dim_(dim) {}

  virtual Parts parts() const = 0;
  const std::string& axis() const { return axis_; }
  int size() const { return size_; }
  int64_t dim() const { return dim_; }

  // Has a layer that makes parts give them, one that takes them get them, and one between do both.
  void stay_in_parts() { in_parts_ = true; }
  void leave_parts() override { ends_ = true; }

 protected:
  bool in_parts() const { return in_parts_; }
  // Returns what a layer that can give parts gives: them, a divided tensor that has them, or the whole.
  torch::Tensor given(const torch::Tensor& part) const;

 private:
  std::string axis_;
  int size_;
  int64_t dim_;
  bool in_parts_ = false;
  bool ends_ = false;  // nothing follows but what takes divided tensors
};

// Has activations stay in parts between the layers of the sequences in a module, where the layers can do with them.
void join_layers(torch::nn::Module& module);

}  // namespace cohort
