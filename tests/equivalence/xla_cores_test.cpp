// Replicas of several cores of XLA take the same steps as one CPU: networks for images that are cut in height and
// width, with odd sizes and short last batches, by fit() and in loops of one's own.
#include <gmock/gmock.h>

#include "cohort/cluster/xla_strategy.h"
#include "cohort/models/zoo.h"
#include "cohort/train.h"
#include "tests/equivalence/cores.h"
#include "tests/support/counting_runner.h"
#include "tests/support/errors.h"
#include "tests/support/xla.h"

namespace cohort::equivalence::xla_cores_test {
namespace {

using testing::CountingRunner;
using testing::error_of;
using ::testing::HasSubstr;
using torch::nn::Conv2dOptions;
using Parts = std::vector<int64_t>;

// The U-Net of the zoo, small, for images of odd sizes.
std::shared_ptr<LayerModule> unet_of_the_zoo() {
  return models::unet({.num_classes = 3, .filters = 2, .levels = 2});
}

// Layers without statistics of a batch, so that replicas with shares of any size are as one device.
struct Plain : torch::nn::Module {
  Plain() {
    down = register_module("down", torch::nn::Conv2d(Conv2dOptions(3, 4, 3).stride(2).padding(1)));
    conv = register_module("conv", torch::nn::Conv2d(Conv2dOptions(4, 3, 3).padding(1)));
  }
  torch::Tensor forward(const torch::Tensor& x) { return conv(torch::tanh(down(x))).mean({2, 3}); }
  torch::nn::Conv2d down{nullptr}, conv{nullptr};
};

// A U-Net of two levels. The sizes are odd on both: down by a convolution of stride 2 and by pooling, up by repeated
// elements and by a transposed convolution, with the last row or column padded.
struct UNet : torch::nn::Module {
  UNet() {
    first = register_module("first", torch::nn::Conv2d(Conv2dOptions(3, 4, 3).padding(1).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    down = register_module("down", torch::nn::Conv2d(Conv2dOptions(4, 5, 3).stride(2).padding(1)));
    inner = register_module("inner", torch::nn::Conv2d(Conv2dOptions(5, 5, 3).padding(1)));
    up = register_module("up", torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(5, 4, 2).stride(2)));
    last = register_module("last", torch::nn::Conv2d(Conv2dOptions(8, 3, 1)));
  }
  static torch::Tensor like(const torch::Tensor& x, const torch::Tensor& wanted) {
    const torch::Tensor cut = x.slice(2, 0, wanted.size(2)).slice(3, 0, wanted.size(3));
    return torch::constant_pad_nd(cut, {0, wanted.size(3) - cut.size(3), 0, wanted.size(2) - cut.size(2)});
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor fine = torch::relu(norm(first(x)));
    const torch::Tensor coarse = torch::relu(down(fine));
    const torch::Tensor least = torch::relu(inner(torch::max_pool2d(coarse, 2)));
    const torch::Tensor middle =
        coarse + like(torch::upsample_nearest2d(least, {least.size(2) * 2, least.size(3) * 2}), coarse);
    return last(torch::cat({fine, like(up(middle), fine)}, 1));
  }
  torch::nn::Conv2d first{nullptr}, down{nullptr}, inner{nullptr}, last{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::ConvTranspose2d up{nullptr};
};

struct Trained {
  torch::Tensor weights;
  double loss = 0.0;
  torch::Tensor predictions;
};

// What is trained in batches of 4: 20 steps.
struct Course {
  bool short_batches = true;  // the last one, if the number of examples is no multiple of 4
  int64_t epochs = 5;
  int64_t steps_of_a_launch = 1;
};

template <typename Make>
Trained trained_as(const Make& make, const Strategy& strategy, const Example& data, const Course& course = {}) {
  const auto scope = strategy.scope();
  torch::manual_seed(3);
  Model model([&] {
    auto net = make();
    net->to(torch::kDouble);
    return net;
  });
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true, .axis = 1}),
                 .steps_per_execution = course.steps_of_a_launch});
  const Dataset batches = Dataset::from_tensor_slices(data).batch(4, {.drop_remainder = !course.short_batches});
  model.fit(batches, {.epochs = course.epochs, .verbose = Verbose::kSilent});
  std::vector<torch::Tensor> all;
  for (const auto& [name, weight] : model.weights()) all.push_back(weight.reshape({-1}).to(torch::kDouble));
  return {.weights = torch::cat(all).cpu(),
          .loss = model.evaluate(batches, {.verbose = Verbose::kSilent})["loss"],
          .predictions = model.predict(batches).cpu()};
}

template <typename Net>
Trained trained(const Strategy& strategy, const Example& data, const Course& course = {}) {
  return trained_as([] { return std::make_shared<Net>(); }, strategy, data, course);
}

Example segmented(int64_t examples) {
  torch::manual_seed(12);
  return {.x = torch::randn({examples, 3, 13, 11}, torch::kDouble),
          .y = torch::randint(3, {examples, 13, 11}, torch::kLong)};
}

void expect_same(const Trained& alone, const Trained& together) {
  EXPECT_LT(distance(alone.weights, together.weights), 1e-9);
  EXPECT_NEAR(alone.loss, together.loss, 1e-9);
  EXPECT_LT(distance(alone.predictions, together.predictions), 1e-9);
}

struct TwoConvolutions : torch::nn::Module {
  TwoConvolutions() {
    first = register_module("first", torch::nn::Conv2d(Conv2dOptions(3, 2, 3).padding(1)));
    second = register_module("second", torch::nn::Conv2d(Conv2dOptions(2, 3, 3).padding(1)));
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Conv2d first{nullptr}, second{nullptr};
};

// Images of fewer rows or columns than there are cores, as on the lowest levels of a U-Net: XLA's partitioner gave
// wrong gradients of kernels for some of these sizes.
TEST_F(XlaCores, ImagesOfFewRows) {
  for (const auto& [height, width] : {std::pair(1, 5), std::pair(2, 4), std::pair(3, 1), std::pair(3, 2)}) {
    SCOPED_TRACE(c10::str(height, " x ", width));
    torch::manual_seed(12);
    const Example data{.x = torch::randn({4, 3, height, width}, torch::kDouble),
                       .y = torch::randint(3, {4, height, width}, torch::kLong)};
    expect_same(trained<TwoConvolutions>(OneDeviceStrategy("/CPU:0"), data),
                trained<TwoConvolutions>(cut({1, 1, 2, 2}), data));
  }
}

class XlaPartitions : public XlaCores, public ::testing::WithParamInterface<std::vector<int64_t>> {};

TEST_P(XlaPartitions, OfACnn) {
  const Example data = classified(14);
  expect_same(trained<Cnn>(OneDeviceStrategy("/CPU:0"), data), trained<Cnn>(cut(GetParam()), data));
}

// In launches of one step and of seven: 19 whole batches are loops of 7, 7 and 5, and the short last one is by itself.
TEST_P(XlaPartitions, OfAUNet) {
  const Example data = segmented(78);
  const Trained alone = trained<UNet>(OneDeviceStrategy("/CPU:0"), data, {.epochs = 1});
  const Strategy strategy = cut(GetParam());
  expect_same(alone, trained<UNet>(strategy, data, {.epochs = 1}));
  const CountingRunner::Scope counting;
  expect_same(alone, trained<UNet>(strategy, data, {.epochs = 1, .steps_of_a_launch = 7}));
  EXPECT_GE(std::count(counting->launches.begin(), counting->launches.end(), 7), 3);  // and those of evaluate, predict
}

INSTANTIATE_TEST_SUITE_P(Dims, XlaPartitions,
                         ::testing::Values(Parts{1, 1, 2, 1}, Parts{1, 1, 1, 2}, Parts{1, 1, 2, 2}),
                         [](const auto& info) { return c10::str(info.param[2], "x", info.param[3]); });

// Batch statistics are each replica's own, so whole batches on two CPU replicas are the same steps.
TEST_F(XlaCores, TwoReplicasOfTwoCores) {
  const Example data = classified(16);
  const Trained host = trained<Cnn>(MirroredStrategy({.devices = cpu_devices(2)}), data, {.short_batches = false});
  expect_same(host, trained<Cnn>(cut({1, 1, 2, 1}, 2), data, {.short_batches = false}));
}

// Shares of the short last batch differ; nothing in the network depends on the shares.
TEST_F(XlaCores, TwoReplicasOfTwoCoresWithAShortBatch) {
  const Example data = classified(15);
  expect_same(trained<Plain>(OneDeviceStrategy("/CPU:0"), data), trained<Plain>(cut({1, 1, 1, 2}, 2), data));
}

// Whole batches only: every size of a batch is compiled anew, which takes long.
TEST_F(XlaCores, FourCoresOfTheUNetOfTheZoo) {
  const Example data = segmented(16);
  expect_same(trained_as(unet_of_the_zoo, OneDeviceStrategy("/CPU:0"), data),
              trained_as(unet_of_the_zoo, cut({1, 1, 2, 2}), data));
}

// A loop of one's own, whose last batches have shares of different sizes and empty ones.
TEST_F(XlaCores, ALoopThatSplitsAHiddenValue) {
  const XlaStrategy strategy(
      {.plugin = "cpu", .num_devices = 4, .num_cores_per_replica = 2, .plugin_options = kEightDevices});
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_EQ(strategy.num_cores_per_replica(), 2);
  const auto steps = [](const Strategy& on, const std::function<torch::Tensor(const torch::Tensor&)>& split) {
    torch::manual_seed(5);
    auto net = on.mirror([] {
      torch::nn::Sequential made(torch::nn::Linear(kFeatures, 7), torch::nn::Linear(7, kClasses));
      made->to(torch::kDouble);
      return made;
    });
    auto optimizer = on.optimizer(net, Adam({.learning_rate = 0.01}));
    for (const Example& batch : global_batches(torch::kDouble, true, 16)) {
      on.run(
          [&](Replica& replica, const Example& part) {
            const Example share = part.to(replica.device());
            const torch::Tensor hidden = net[replica]->ptr(0)->as<torch::nn::Linear>()->forward(share.x);
            const torch::Tensor y = net[replica]->ptr(1)->as<torch::nn::Linear>()->forward(split(hidden.tanh()));
            optimizer[replica].minimize(replica.global_mean(torch::nn::functional::cross_entropy(
                y, share.y, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone))));
          },
          equivalence::split(batch, on.num_local_replicas()));
    }
    std::vector<torch::Tensor> all;
    for (const auto& weight : net.copies().front()->parameters()) all.push_back(weight.detach().cpu().reshape({-1}));
    return torch::cat(all);
  };
  const torch::Tensor alone = steps(OneDeviceStrategy("/CPU:0"), [](const torch::Tensor& x) { return x; });
  const torch::Tensor together = steps(strategy, [&](const torch::Tensor& x) {
    return strategy.experimental_replicate_to_logical_devices(
        strategy.experimental_split_to_logical_devices(x, {1, 2}));
  });
  EXPECT_LT(distance(alone, together), 1e-9);
}

TEST_F(XlaCores, CoresOfADeviceAssignment) {
  const auto resolver = std::make_shared<TPUClusterResolver>("local");
  const TpuTopology topology = tpu_initialize(resolver, "cpu", kEightDevices);
  const auto assignment = DeviceAssignment::build(
      topology, {.computation_shape = {2, 1, 1, 1}, .computation_stride = {4, 1, 1, 1}, .num_replicas = 3});
  const TPUStrategy own(resolver, {.plugin = "cpu", .plugin_options = kEightDevices, .device_assignment = assignment});
  EXPECT_EQ(own.num_replicas_in_sync(), 3);
  EXPECT_EQ(own.num_cores_per_replica(), 2);
  const PerReplica<torch::Tensor> sums = own.run([&](Replica& replica) {
    const torch::Tensor rows = torch::full({4, 3}, static_cast<double>(replica.local_id() + 1), replica.device());
    return own.experimental_split_to_logical_devices(rows, {2, 1}).sum();
  });
  for (int r = 0; r < 3; ++r)
    EXPECT_EQ(sums.values()[static_cast<std::size_t>(r)].cpu().item<double>(), 12.0 * (r + 1));
}

TEST_F(XlaCores, BlocksOfCoresForPartitionDims) {
  const auto resolver = std::make_shared<TPUClusterResolver>("local");
  const TPUStrategy four(resolver, {.plugin = "cpu",
                                    .plugin_options = kEightDevices,
                                    .input_partition_dims = {1, 1, 2, 2},
                                    .eval_input_partition_dims = {4, 1, 1, 1}});
  EXPECT_EQ(four.num_cores_per_replica(), 4);
  EXPECT_EQ(four.num_replicas_in_sync(), 2);
}

TEST_F(XlaCores, WhatIsRefused) {
  XlaStrategyOptions options{.plugin = "cpu", .num_devices = 4, .plugin_options = kEightDevices};
  const auto refused = [&] { return error_of<InvalidArgument>([&] { XlaStrategy{options}; }); };
  options.num_cores_per_replica = 3;
  EXPECT_THAT(refused(), HasSubstr("a replica has 3 core(s), and there are 4 devices"));
  options.num_cores_per_replica = 9;
  options.num_devices = 0;
  EXPECT_THAT(refused(), HasSubstr("a replica has 9 core(s), and there are 8 devices"));
  options.num_cores_per_replica = -1;
  EXPECT_THAT(refused(), HasSubstr("num_cores_per_replica is -1"));
  options.num_cores_per_replica = 2;
  options.input_partition_dims = {1, 1, 2, 2};
  EXPECT_THAT(refused(), HasSubstr("input_partition_dims is [1, 1, 2, 2], of which the product is 4, wanted numbers "
                                   "above 0 whose product is the number of cores of a replica, 2"));
  options.input_partition_dims = {1, 1, 2, 1};
  options.eval_input_partition_dims = {1, 0, 2, 1};
  EXPECT_THAT(refused(), HasSubstr("eval_input_partition_dims is [1, 0, 2, 1]"));
  const XlaStrategy two = XlaStrategy({.plugin = "cpu", .num_devices = 2, .num_cores_per_replica = 2});
  const auto split = [&](const Parts& dims) {
    return error_of<InvalidArgument>([&] {
      two.run([&](Replica& replica) {
        (void)two.experimental_split_to_logical_devices(torch::ones({4, 3}, replica.device()), dims);
      });
    });
  };
  EXPECT_THAT(split({2, 1, 1}), HasSubstr("got 3 numbers, [2, 1, 1], for a tensor of [4, 3]"));
  EXPECT_THAT(split({2, 2}), HasSubstr("partition_dimensions is [2, 2], of which the product is 4"));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                two.experimental_split_to_logical_devices(torch::ones({4, 3}), {2, 1});
              }),
              HasSubstr("got a tensor on cpu, wanted one on a device of the strategy's replicas, within run()"));
  const auto assign = [&](int core) { (void)two.experimental_assign_to_logical_device(torch::ones({1}), core); };
  EXPECT_THAT(error_of<InvalidArgument>([&] { assign(2); }), HasSubstr("the logical device 2, but a replica has 2"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { assign(1); }), HasSubstr("run one program together"));
  EXPECT_THAT(error_of<FailedPrecondition>([&] { XlaStrategy({.plugin = "cpu", .num_devices = 1}); }),
              HasSubstr("xla:0 was to run on the cores [0], but a strategy that lives has it run on [0, 1]"));
}

TEST_F(XlaCores, AnInputWithOtherDimensionsIsNamed) {
  const Strategy strategy = cut({1, 1, 2, 1});
  const auto scope = strategy.scope();
  Model model([] { return torch::nn::Sequential(torch::nn::Linear(4, 3)); });
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                (void)model.predict(torch::ones({2, 4}));
              }),
              HasSubstr("input_partition_dims has 4 numbers, [1, 1, 2, 1], but no input of the model has as many "
                        "dimensions; the first is [2, 4]"));
}

}  // namespace
}  // namespace cohort::equivalence::xla_cores_test
