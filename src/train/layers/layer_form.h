// LayerForm: what computes a layer's output in place of the layer, such as the part of it that this replica has. Layers
// know of no such part: a wing gives each its form.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "cohort/train/layers/layer.h"
#include "train/layers/leaves_parts.h"

namespace cohort {

class LayerForm : public LeavesParts {
 public:
  void leave_parts() override {}
  // Computes the layer's output; of a ConvolutionModule what its activation gets.
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
};

// Base of layers that may have a form, besides LayerModule.
class FormedLayer : public LeavesParts {
 public:
  void take_form(std::unique_ptr<LayerForm> form) { form_ = std::move(form); }
  // Returns what computes in place of the layer; null: the layer itself.
  LayerForm* form() const { return form_.get(); }
  void leave_parts() override {
    if (form_ != nullptr) form_->leave_parts();
  }

 private:
  std::unique_ptr<LayerForm> form_;
};

// Base of layers without parameters that count the channels of their input.
class CountsChannels {
 public:
  virtual ~CountsChannels() = default;
  // Has the layer expect one of so many equal parts of the channels.
  virtual void divide_channels(int64_t parts) = 0;
};

}  // namespace cohort
