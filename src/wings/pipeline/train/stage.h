// The module of a Stage() layer.
#pragma once

#include "cohort/train/layers/layer.h"

namespace cohort {

class StageModule final : public LayerModule {
 public:
  torch::Tensor forward(const torch::Tensor& x) override;
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }
};

}  // namespace cohort
