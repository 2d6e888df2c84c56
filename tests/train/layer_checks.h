// A layer that is built, and what every layer has to keep to.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/train/layers.h"

namespace cohort::testing {

struct Built {
  std::shared_ptr<LayerModule> module;
  Shape output;
  torch::Tensor operator()(const torch::Tensor& x) const { return module->forward(x); }
  torch::Tensor operator[](const std::string& name) const {
    for (const auto& item : module->named_parameters()) {
      if (item.key() == name) return item.value();
    }
    for (const auto& item : module->named_buffers()) {
      if (item.key() == name) return item.value();
    }
    return {};
  }
};

inline Built build(const Layer& layer, Shape input, torch::ScalarType dtype = torch::kDouble) {
  const BuildContext context{.name = "it", .input = std::move(input), .dtype = dtype, .input_dtype = dtype};
  Shape output = layer.kind().output_shape(context);
  return {layer.kind().build(context), std::move(output)};
}

inline torch::Tensor random(std::vector<int64_t> shape) {
  return torch::randn(shape, torch::kDouble);
}

inline void expect_close(const torch::Tensor& a, const torch::Tensor& b, double tolerance = 1e-12) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_LT(a.numel() == 0 ? 0.0 : (a - b).abs().max().item<double>(), tolerance);
}

// Expects the promised output shape, also for an empty batch. Gradients of an empty batch are zeros and reach the
// input, because a layer below may wait for the other replicas in its backward pass.
inline void expect_shape(const Built& layer, const Shape& input) {
  for (const int64_t batch : {3, 0}) {
    Shape in = input, out = layer.output;
    in.insert(in.begin(), batch);
    out.insert(out.begin(), batch);
    const torch::Tensor x = random(in).requires_grad_();
    const torch::Tensor y = layer(x);
    EXPECT_EQ(y.sizes().vec(), out);
    if (batch > 0) continue;
    ASSERT_TRUE(y.requires_grad()) << "the output of an empty batch does not depend on the input";
    y.sum().backward();
    EXPECT_TRUE(x.grad().defined()) << "backward does not reach the input";
    for (auto& parameter : layer.module->parameters()) {
      ASSERT_TRUE(parameter.grad().defined());
      EXPECT_EQ(parameter.grad().abs().sum().item<double>(), 0.0);
      parameter.mutable_grad() = torch::Tensor();
    }
  }
}

}  // namespace cohort::testing
