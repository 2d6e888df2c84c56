// Layers that merge tensors, beside what Keras 3 gives.
#include <gtest/gtest.h>

#include "cohort/train/functional.h"
#include "cohort/train/layers/merging.h"
#include "tests/golden/golden.h"

namespace cohort::testing::keras_merging_test {
namespace {

using nlohmann::json;

constexpr Tolerance kWithin = {.absolute = 1e-6, .relative = 1e-6};

Layer layer_of(const json& golden) {
  if (golden.at("layer") == "Maximum") return Maximum();
  const json& options = golden.at("options");
  DotOptions dot{.normalize = options.at("normalize")};
  if (options.at("axes").is_array()) dot.axes = options.at("axes").get<std::vector<int64_t>>();
  if (!options.at("axes").is_array()) dot.axes = {options.at("axes")};
  return Dot(dot);
}

// The masks come from a layer that gives its input the mask of the case.
class MaskedInput final : public LayerModule {
 public:
  explicit MaskedInput(torch::Tensor mask) : mask_(std::move(mask)) {}
  torch::Tensor forward(const torch::Tensor& x) override { return x; }
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& /*mask*/) override { return mask_; }
  bool makes_mask() const override { return true; }

 private:
  torch::Tensor mask_;
};

class MaskedInputKind final : public LayerKind {
 public:
  explicit MaskedInputKind(torch::Tensor mask) : mask_(std::move(mask)) {}
  std::string_view type() const override { return "MaskedInput"; }
  std::string_view base_name() const override { return "masked_input"; }
  Shape output_shape(const BuildContext& context) const override { return context.input; }
  std::shared_ptr<LayerModule> build(const BuildContext& /*context*/) const override {
    return std::make_shared<MaskedInput>(mask_);
  }

 private:
  torch::Tensor mask_;
};

std::string check(const json& golden) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  NamedTensors tensors;
  std::vector<SymbolicTensor> inputs, merged;
  for (std::size_t i = 0; i < golden.at("inputs").size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    tensors.emplace_back(name, golden_tensor(golden.at("inputs").at(i)).set_requires_grad(true));
    inputs.push_back(Input(tensors.back().second.sizes().slice(1).vec(), {.name = name}));
    merged.push_back(inputs.back());
    if (!golden.contains("mask")) continue;
    const Layer masked(std::make_shared<MaskedInputKind>(golden_tensor(golden.at("mask").at(i), torch::kBool)));
    merged.back() = masked(inputs.back());
  }
  Functional model(inputs, layer_of(golden)(merged), {.dtype = torch::kDouble});
  const torch::Tensor output = model(tensors, {.training = true}).front().second;
  std::string wrong = difference("output", output, golden_tensor(golden.at("outputs").front()), kWithin);
  (output * golden_tensor(golden.at("cotangents").front())).sum().backward();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const torch::Tensor wanted = golden_tensor(golden.at("grad_inputs").at(i));
    wrong += difference("gradient of " + tensors[i].first, tensors[i].second.grad(), wanted, kWithin);
  }
  return wrong;
}

TEST(KerasMerging, GivesWhatKerasGives) {
  int cases = 0;
  check_golden(golden_folder() / ".." / "facts" / "keras", "facts.json", [&](const json& golden) {
    if (golden.at("kind") != "layer" || (golden.at("layer") != "Dot" && golden.at("layer") != "Maximum")) {
      return std::string();
    }
    ++cases;
    return check(golden);
  });
  if (IsSkipped()) return;
  EXPECT_EQ(cases, 8);
}

}  // namespace
}  // namespace cohort::testing::keras_merging_test
