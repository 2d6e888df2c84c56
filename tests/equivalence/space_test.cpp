// Networks whose images are in parts against one device: 20 steps of Adam in float64, of sizes that do not divide, with
// short last batches and empty shares.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "cohort/parallel/mesh_strategy.h"
#include "tests/equivalence/space_runs.h"
#include "tests/support/errors.h"

namespace cohort::equivalence::space_test {
namespace {

using namespace space_runs;
using Dims = std::vector<int64_t>;

std::vector<Layer> layers() {
  return {
      Checkpointed({Conv2D({.filters = 4, .kernel_size = 3, .strides = 2, .padding = Padding::kSame}),
                    BatchNormalization(), Activation(Activation::kTanh)}),
      DepthwiseConv2D({.kernel_size = 3, .padding = Padding::kSame, .activation = Activation::kTanh}),
      MaxPooling2D({.pool_size = 3, .strides = 2, .padding = Padding::kSame}),
      SeparableConv2D({.filters = 5, .kernel_size = 3, .padding = Padding::kSame, .dilation_rate = 2}),
      UpSampling2D({.size = 2, .interpolation = UpSampling2DOptions::Interpolation::kBilinear}),
      Dropout(0.2),
      Conv2DTranspose(
          {.filters = 4, .kernel_size = 3, .strides = 2, .padding = Padding::kSame, .activation = Activation::kTanh}),
      AveragePooling2D({.pool_size = 3, .strides = 2, .padding = Padding::kSame}),
      Conv2D({.filters = 2, .kernel_size = 2, .activation = Activation::kRelu}),
      MaxPooling2D(),
      Flatten(),
      Dense(kLabels)};
}

TEST(Space, LearnsAsOneDevice) {
  for (const Net& net : nets()) {
    const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), net);
    EXPECT_LT(wanted.history["loss"].back(), wanted.history["loss"].front());
    for (const Dims& dims : {Dims{1, 1, 2, 1}, Dims{1, 1, 1, 3}, Dims{1, 1, 2, 2}}) {
      SCOPED_TRACE(c10::str(net.name, " in ", dims));
      const auto parts = static_cast<int>(dims[2] * dims[3]);
      const MirroredStrategy strategy({.devices = cpu_devices(parts), .input_partition_dims = dims});
      expect_like(under(strategy, net), wanted);
    }
  }
}

// docs/parallelism.md has these lines.
MirroredStrategy in_quarters() {
  const MirroredStrategy strategy({.devices = cpu_devices(4), .input_partition_dims = {1, 1, 2, 2}});
  const auto scope = strategy.scope();
  Sequential model{Conv2D(8, 7, Activation::kRelu), MaxPooling2D(), Conv2D(8, 3), GlobalAveragePooling2D(), Dense(10)};
  model.build({3, 21, 21});
  EXPECT_EQ(model.predict(Dataset::from_tensor_slices(torch::ones({2, 3, 21, 21})).batch(2)).sizes(),
            torch::IntArrayRef({2, 10}));
  return strategy;
}

MeshStrategy in_rows() {
  const MeshStrategy strategy(DeviceMesh({2, 3}, {"batch", "space"}, cpu_devices(6)),
                              {.input_partition_dims = {1, 1, 3, 1}});
  return strategy;
}

// A module of one's own that knows of parts.
class Blur final : public torch::nn::Module {
 public:
  Tensor forward(const Tensor& x) {
    Replica& replica = *Replica::current();
    if (!divided) return torch::avg_pool2d(x, {3, 1}, {1, 1}, {1, 0});
    const torch::Tensor rows = replica.halo(x, /*dim=*/2, /*before=*/1, /*after=*/1);  // zeros beyond the edges
    const torch::Tensor blurred = torch::avg_pool2d(rows, {3, 1}, {1, 1});
    return replica.join(blurred, x);
  }
  bool divided = true;
};

TEST(Space, StrategiesOfPartsHaveAReplicaForEachLine) {
  EXPECT_EQ(in_quarters().num_replicas_in_sync(), 1);
  EXPECT_EQ(in_rows().num_replicas_in_sync(), 2);
}

// Batch and space: shares as under mirrored replicas, and the same random numbers.
TEST(Space, DividesImagesBesideTheBatch) {
  const Net net{"layers", [] {
                  Sequential model(layers(), {.dtype = torch::kDouble});
                  model.build({2, 21, 19});
                  return model;
                }};
  const Outcome wanted = under(MirroredStrategy({.devices = cpu_devices(2)}), net);
  const DeviceMesh mesh({2, 3}, {"batch", "space"}, cpu_devices(6));
  for (const int stage : {0, 1, 2, 3}) {  // of shared states
    SCOPED_TRACE(stage);
    expect_like(under(MeshStrategy(mesh, {.sharding = {.stage = stage}, .input_partition_dims = {1, 1, 3, 1}}), net),
                wanted);
  }
}

TEST(Space, ModulesOfOnesOwnTakeHalos) {
  for (const int64_t height : {7, 3}) {
    const Tensor x = torch::randn({1, 2, height, 5}, torch::kDouble);
    const Tensor factor = torch::randn({1, 2, height, 5}, torch::kDouble);
    const auto run = [&](const Strategy& strategy, bool divided) {
      return strategy
          .run([&](Replica& replica) {
            Blur blur;
            blur.divided = divided;
            const Tensor own = x.clone().requires_grad_();
            const Tensor part = divided ? strategy.experimental_split_to_logical_devices(own, {1, 1, 3, 1}) : own;
            (blur.forward(part) * factor).sum().backward();
            return own.grad();
          })
          .values();
    };
    const Tensor wanted = run(OneDeviceStrategy("/CPU:0"), false).front();
    const MeshStrategy strategy(DeviceMesh({3}, {"space"}, cpu_devices(3)));
    for (const Tensor& gradient : run(strategy, true))
      EXPECT_LT((gradient - wanted).abs().max().item<double>(), kClose);
  }
}

TEST(Space, PartitionsThatDoNotFitAreNamed) {
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const auto mirrored = [](int devices, const Dims& dims) {
    return testing::error_of<Error>(
        [&] { MirroredStrategy({.devices = cpu_devices(devices), .input_partition_dims = dims}); });
  };
  expect(mirrored(3, {1, 1, 2, 1}),
         "input_partition_dims has 2 parts, and there are 3 devices, wanted a multiple of it");
  expect(mirrored(2, {2, 1, 1, 1}), "which cuts examples (dimension 0) in 2 parts, wanted 1");
  expect(mirrored(2, {1, 2, 1, 1}), "which cuts channels (dimension 1) in 2 parts, wanted 1");
  const auto mesh = [](const std::vector<int>& sizes, const std::vector<std::string>& names,
                       const MeshOptions& options) {
    return testing::error_of<Error>([&] { MeshStrategy(DeviceMesh(sizes, names), options); });
  };
  expect(mesh({4}, {"space"}, {.input_partition_dims = {1, 1, 2, 1}}), "of which the product is 2, wanted");
  expect(mesh({2}, {"batch"}, {.input_partition_dims = {1, 1, 2, 1}}), "no axis of the mesh");
  expect(mesh({2, 2}, {"space", "sequence"}, {}), "both divide inputs");
  expect(mesh({2, 2}, {"model", "space"}, {.layout = {{"weight", {"model", ""}}}}),
         "which do not go together: a replica");
  const std::string message = testing::error_of<Unimplemented>([] {
    const MirroredStrategy strategy({.devices = cpu_devices(2), .input_partition_dims = {1, 1, 2, 1}});
    const auto scope = strategy.scope();
    Sequential model{Conv2D(4, 3), LayerNormalization({.dimensions = 2})};
    model.build({1, 8, 8});
    (void)model.predict(Dataset::from_tensor_slices(torch::ones({2, 1, 8, 8})).batch(2));
  });
  expect(message, "the layer \"layer_normalization\"");
}

}  // namespace
}  // namespace cohort::equivalence::space_test
