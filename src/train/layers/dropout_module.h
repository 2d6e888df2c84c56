// The module of a Dropout() layer.
#pragma once

#include "cohort/train/layers/layer.h"
#include "train/layers/layer_form.h"

namespace cohort {

class DropoutModule final : public LayerModule, public FormedLayer {
 public:
  explicit DropoutModule(double rate) : rate_(rate) {}

  double rate() const { return rate_; }

  torch::Tensor forward(const torch::Tensor& x) override;
  DependsOn depends_on() const override { return DependsOn::kElement; }
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }

 private:
  double rate_;
};

}  // namespace cohort
