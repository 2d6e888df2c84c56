// The module of an Embedding() layer.
#pragma once

#include <string>
#include <string_view>

#include "cohort/train/layers/basic.h"
#include "train/layers/constraints.h"
#include "train/layers/layer_form.h"

namespace cohort {

class EmbeddingModule final : public LayerModule, public FormedLayer, public ConstrainedLayer {
 public:
  static constexpr std::string_view kType = "Embedding";

  EmbeddingModule(const EmbeddingOptions& options, const BuildContext& context);

  const std::string& layer_name() const { return name_; }
  int64_t rows() const { return rows_; }
  const Regularizer& regularizer() const { return regularizer_; }
  const torch::Tensor& weight() const { return weight_; }

  torch::Tensor forward(const torch::Tensor& x) override;
  torch::Tensor mask_of(const torch::Tensor& x, const torch::Tensor& mask) override {
    return mask_zero_ ? x.ne(0) : mask;
  }
  bool makes_mask() const override { return mask_zero_; }
  torch::Tensor penalty() const override;

 private:
  std::string name_;
  int64_t rows_;
  bool mask_zero_;
  Regularizer regularizer_;
  torch::Tensor weight_;
};

}  // namespace cohort
