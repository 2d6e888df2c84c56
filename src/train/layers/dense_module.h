// The module of a Dense() layer.
#pragma once

#include <string>

#include "cohort/train/layers/basic.h"
#include "train/layers/constraints.h"
#include "train/layers/layer_form.h"

namespace cohort {

class DenseModule final : public LayerModule, public FormedLayer, public ConstrainedLayer {
 public:
  static constexpr std::string_view kType = "Dense";

  // Everything that a form needs.
  struct Parts {
    std::string name;
    int64_t inputs;
    int64_t last_dim;  // of an activation
    Activation activation;
    Regularizer kernel_regularizer, bias_regularizer;
    torch::Tensor weight, bias;  // [units, inputs] and [units]; undefined: there is no bias
  };

  DenseModule(const DenseOptions& options, const BuildContext& context);

  const Parts& parts() const { return parts_; }

  torch::Tensor forward(const torch::Tensor& x) override;
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }
  torch::Tensor penalty() const override;

 private:
  Parts parts_;
};

}  // namespace cohort
