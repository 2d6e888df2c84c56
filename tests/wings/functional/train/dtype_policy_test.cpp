// WithPolicy: what a layer computes in half precision, beside LibTorch's own casts.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "cohort/train/functional.h"
#include "cohort/train/layers.h"
#include "cohort/train/layers/dtype_policy.h"
#include "cohort/train/model.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"

namespace cohort::dtype_policy_test {
namespace {

using testing::build;
using testing::Built;
using testing::expect_close;
using testing::expect_error;
using testing::expect_shape;
using testing::random;
using torch::Tensor;

Tensor in_half(const Tensor& x) {
  return x.to(torch::kHalf).to(x.scalar_type());
}

TEST(WithPolicyTest, RoundsInputsAndOutputs) {
  torch::manual_seed(1);
  const Built layer = build(WithPolicy(Dense(4, "tanh"), DTypePolicy::kMixedFloat16), {3});
  expect_shape(layer, {3});
  const Tensor x = random({5, 3});
  const Tensor wanted = torch::tanh(torch::linear(in_half(x), layer["weight"], layer["bias"]));
  expect_close(layer(x), in_half(wanted));
  EXPECT_FALSE(torch::equal(layer(x), wanted));
  const Built large = build(WithPolicy(Rescaling(1000.0, 0.0), DTypePolicy::kMixedFloat16), {3});
  EXPECT_TRUE(torch::isinf(large(torch::full({1, 3}, 100.0, torch::kDouble))).all().item<bool>());
}

// A gradient below float16's smallest number goes, unless the loss was scaled.
TEST(WithPolicyTest, GradientsGoThroughHalf) {
  const Built layer =
      build(WithPolicy(Dense({.units = 1, .kernel_initializer = "ones"}), DTypePolicy::kMixedFloat16), {1});
  for (const double scale : {1.0, 65536.0}) {
    layer.module->zero_grad();
    (layer(torch::ones({1, 1}, torch::kDouble)).sum() * 1e-9 * scale).backward();
    const double wanted = scale == 1.0 ? 0.0 : 1e-9 * scale;
    EXPECT_NEAR(layer["weight"].grad().item<double>(), wanted, 1e-3 * wanted);
  }
}

TEST(WithPolicyTest, KeepsNamesMasksAndSeveralInputs) {
  torch::manual_seed(2);
  const SymbolicTensor ids = Input({4}, {.dtype = torch::kLong, .name = "ids"});
  const auto half = [](const Layer& layer) { return WithPolicy(layer, DTypePolicy::kMixedFloat16); };
  const SymbolicTensor words =
      half(Embedding({.input_dim = 5, .output_dim = 3, .mask_zero = true, .name = "words"}))(ids);
  const SymbolicTensor both =
      half(Bidirectional(LSTM({.units = 2, .return_sequences = true, .name = "x"}), {.name = "both"}))(words);
  const SymbolicTensor sum = half(Concatenate())({words, both});
  Functional model(
      ids, half(BatchNormalization({.axis = -1, .name = "norm"}))(half(LSTM({.units = 3, .name = "last"}))(sum)));
  std::vector<std::string> names;
  for (const auto& [name, weight] : model.weights()) names.push_back(name);
  EXPECT_NE(std::find(names.begin(), names.end(), "words.weight"), names.end());
  EXPECT_NE(std::find(names.begin(), names.end(), "both.backward.weight_ih_l0"), names.end());
  EXPECT_NE(std::find(names.begin(), names.end(), "norm.running_mean"), names.end());
  const Tensor padded = torch::tensor({{1, 2, 0, 0}, {3, 0, 0, 0}});
  const Tensor y = model.predict(padded);
  EXPECT_EQ(y.sizes(), (torch::IntArrayRef{2, 3}));
  model.compile({.optimizer = LossScaleOptimizer(Adam({.learning_rate = 0.05})), .loss = MeanSquaredError()});
  const History history =
      model.fit(padded, torch::ones({2, 3}), {.epochs = 20, .verbose = Verbose::kSilent, .batch_size = 2});
  EXPECT_LT(history["loss"].back(), history["loss"].front());
}

TEST(WithPolicyTest, HalfParametersDoNotLearn) {
  expect_error<InvalidArgument>([] { WithPolicy(Dense({.units = 2, .name = "d"}), DTypePolicy::kFloat16); },
                                "d (Dense): a layer that learns cannot have parameters in half precision");
  const Built frozen = build(WithPolicy(Dense({.units = 2, .trainable = false}), DTypePolicy::kBFloat16), {3});
  expect_error<InvalidArgument>([&] { frozen.module->set_frozen(false); }, "freeze it");
}

}  // namespace
}  // namespace cohort::dtype_policy_test
