// Keras 3's activations, with their gradients (facts.json).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/train/layers.h"
#include "tests/golden/golden.h"

namespace cohort::testing::keras_activations_test {
namespace {

using nlohmann::json;
using torch::Tensor;

constexpr Tolerance kWithin = {.absolute = 1e-6, .relative = 1e-6};

Activation activation_of(const std::string& name, const json& options) {
  if (options.empty()) return Activation::parse(name);
  if (name == "celu") return Celu(options.at("alpha"));
  if (name == "hard_shrink") return HardShrink(options.at("threshold"));
  if (name == "soft_shrink") return SoftShrink(options.at("threshold"));
  if (name == "squareplus") return Squareplus(options.at("b"));
  if (name == "threshold") return Threshold(options.at("threshold"), options.at("default_value"));
  throw std::invalid_argument("there is no activation " + name + " with options");
}

Tensor activated(const std::string& name, const json& options, const Tensor& x) {
  if (name != "glu") return activation_of(name, options)(x);
  const Layer layer = GLU(options.value("axis", -1));
  const BuildContext context{
      .name = "it", .input = x.sizes().slice(1).vec(), .dtype = torch::kDouble, .input_dtype = torch::kDouble};
  const Tensor y = layer.kind().build(context)->forward(x);
  if (y.sizes().slice(1) != torch::IntArrayRef(layer.kind().output_shape(context))) {
    throw std::invalid_argument("the promised shape differs");
  }
  return y;
}

TEST(KerasActivations, DoWhatKerasDoes) {
  int checked = 0;
  check_golden(golden_folder() / ".." / "facts" / "keras", "facts.json", [&](const json& golden) {
    if (golden.at("kind") != "activation") return std::string();
    ++checked;
    const Tensor x = golden_tensor(golden.at("input")).requires_grad_();
    const Tensor y = activated(golden.at("activation"), golden.at("options"), x);
    (y * golden_tensor(golden.at("cotangent"))).sum().backward();
    return difference("output", y, golden_tensor(golden.at("output")), kWithin) +
           difference("gradient", x.grad(), golden_tensor(golden.at("grad_input")), kWithin);
  });
  if (IsSkipped()) return;
  EXPECT_GE(checked, 34);
}

}  // namespace
}  // namespace cohort::testing::keras_activations_test
