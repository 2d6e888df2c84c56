// Keras 3's constraints and regularizers (facts.json).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/train/layers.h"
#include "tests/golden/golden.h"

namespace cohort::testing::keras_constraints_test {
namespace {

using nlohmann::json;
using torch::Tensor;

constexpr Tolerance kWithin = {.absolute = 1e-6, .relative = 1e-6};

std::vector<int64_t> axis_of(const json& options) {
  const json& axis = options.at("axis");
  return axis.is_array() ? axis.get<std::vector<int64_t>>() : std::vector<int64_t>{axis.get<int64_t>()};
}

Constraint constraint_of(const std::string& name, const json& options) {
  if (name == "MaxNorm") return MaxNorm{.max_value = options.at("max_value"), .axis = axis_of(options)};
  if (name == "UnitNorm") return UnitNorm{.axis = axis_of(options)};
  if (name == "NonNeg") return NonNeg{};
  if (name != "MinMaxNorm") throw std::invalid_argument("there is no constraint " + name);
  return MinMaxNorm{.min_value = options.at("min_value"),
                    .max_value = options.at("max_value"),
                    .rate = options.at("rate"),
                    .axis = axis_of(options)};
}

TEST(KerasConstraints, DoWhatKerasDoes) {
  int checked = 0;
  check_golden(golden_folder() / ".." / "facts" / "keras", "facts.json", [&](const json& golden) {
    if (golden.at("kind") != "constraint") return std::string();
    ++checked;
    const Constraint constraint = constraint_of(golden.at("constraint"), golden.at("options"));
    return difference("value", constraint(golden_tensor(golden.at("before"))), golden_tensor(golden.at("after")),
                      kWithin);
  });
  if (IsSkipped()) return;
  EXPECT_GE(checked, 9);
}

Regularizer regularizer_of(const std::string& name, const json& options) {
  if (name == "L1") return Regularizer::l1(options.at("l1"));
  if (name == "L2") return Regularizer::l2(options.at("l2"));
  if (name == "L1L2") return Regularizer::l1_l2(options.at("l1"), options.at("l2"));
  if (name != "OrthogonalRegularizer") throw std::invalid_argument("there is no regularizer " + name);
  const bool rows = options.at("mode") == "rows";
  return Regularizer::orthogonal(options.at("factor"), rows ? Regularizer::Mode::kRows : Regularizer::Mode::kColumns);
}

TEST(KerasConstraints, RegularizersDoWhatKerasDoes) {
  int checked = 0;
  check_golden(golden_folder() / ".." / "facts" / "keras", "facts.json", [&](const json& golden) {
    if (golden.at("kind") != "regularizer") return std::string();
    ++checked;
    const Tensor weights = golden_tensor(golden.at("weights")).requires_grad_();
    const Tensor cost = regularizer_of(golden.at("regularizer"), golden.at("options"))(weights);
    cost.backward();
    const json& grad = golden.at("grad");  // null: Keras has no gradient where both factors are 0
    const Tensor wanted = grad.is_null() ? torch::zeros_like(weights) : golden_tensor(grad);
    return difference("cost", cost, golden_tensor(golden.at("value")), kWithin) +
           difference("gradient", weights.grad(), wanted, kWithin);
  });
  if (IsSkipped()) return;
  EXPECT_GE(checked, 8);
}

}  // namespace
}  // namespace cohort::testing::keras_constraints_test
