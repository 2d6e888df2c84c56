// Pictures that are changed on devices, beside the functions that change them on the host.
#include "cohort/data/device_images.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/access.h"
#include "cohort/distributed_dataset.h"
#include "cohort/error.h"
#include "data/node.h"
#include "device/host_random.h"
#include "strategy/core.h"
#include "strategy/strategies/devices.h"
#include "tests/support/errors.h"
#include "tests/support/fake_device.h"
#include "wings/vision/data/images/kernels/picture_table.h"

namespace cohort::device_images_test {
namespace {

using std::chrono::milliseconds;
using testing::expect_error;

const std::vector<double> kMean = {0.485, 0.456, 0.406};
const std::vector<double> kDeviation = {0.229, 0.224, 0.225};

DeviceImageOptions only_normalized(std::size_t channels = 3) {
  return {.mean = {kMean.begin(), kMean.begin() + static_cast<std::ptrdiff_t>(channels)},
          .deviation = {kDeviation.begin(), kDeviation.begin() + static_cast<std::ptrdiff_t>(channels)}};
}

DeviceImageOptions cropped(int64_t height, int64_t width, const RandomCropOptions& crop,
                           std::optional<double> flip = 0.5) {
  DeviceImageOptions options = only_normalized();
  options.crop = DeviceCrop{height, width, crop};
  options.flip_probability = flip;
  return options;
}

std::vector<DeviceImageOptions> all_options() {
  std::vector<DeviceImageOptions> all = {only_normalized(), only_normalized(1), cropped(9, 7, {}),
                                         cropped(4, 3, {}, std::nullopt), cropped(13, 12, {.padding = 3})};
  for (const PaddingMode mode :
       {PaddingMode::kConstant, PaddingMode::kEdge, PaddingMode::kReflect, PaddingMode::kSymmetric}) {
    all.push_back(cropped(9, 7, {.padding = 5, .padding_mode = mode}));
  }
  all.back().dtype = torch::kBFloat16;
  all.push_back(only_normalized());
  all.back().flip_probability = 1.0;
  all.push_back(only_normalized(1));
  all.back().planes = true;
  return all;
}

// The changes by the functions that a pipeline has them from otherwise.
torch::Tensor changed_on_host(torch::Tensor x, at::Generator generator, const DeviceImageOptions& options) {
  if (options.crop) {
    x = random_crop(x, options.crop->height, options.crop->width, generator, options.crop->options);
  }
  if (options.flip_probability) x = random_horizontal_flip(x, generator, *options.flip_probability);
  x = normalize(x, options.mean, options.deviation);
  return (options.planes ? x.squeeze(0) : x).to(options.dtype);
}

constexpr int64_t kPictures = 11;

// Pictures whose channels lie together in memory, as a decoder leaves them.
torch::Tensor pictures(std::size_t channels) {
  const auto generator = make_host_generator(5);
  return torch::randint(0, 256, {kPictures, 9, 8, static_cast<int64_t>(channels)}, generator, torch::kByte)
      .permute({0, 3, 1, 2});
}

// Returns a batch of the pictures with the numbers that are drawn for them.
Example drawn(const DeviceImages& images, const torch::Tensor& x) {
  std::vector<torch::Tensor> all;
  std::vector<torch::Tensor> numbers;
  for (int64_t i = 0; i < x.size(0); ++i) {
    const Example each = images({.x = x[i]}, make_host_generator(static_cast<uint64_t>(i)));
    all.push_back(each.x);
    if (!each.more.empty()) numbers.push_back(each.more.back());
  }
  Example batch{.x = torch::stack(all)};
  if (!numbers.empty()) batch.more.push_back(torch::stack(numbers));
  return batch;
}

TEST(DeviceImages, KernelsAndOperationsGiveTheBitsOfTheHostsFunctions) {
  std::size_t number = 0;
  for (const DeviceImageOptions& options : all_options()) {
    SCOPED_TRACE(number++);
    const torch::Tensor x = pictures(options.mean.size());
    const DeviceImages images(options);
    const Example batch = drawn(images, x);
    std::vector<torch::Tensor> wanted;
    for (int64_t i = 0; i < kPictures; ++i) {
      wanted.push_back(changed_on_host(x[i], make_host_generator(static_cast<uint64_t>(i)), options));
    }
    const DeviceMapPtr map = images.finish(Dataset::from_tensors(batch).batch(1)).node()->left_to_devices().map;
    ASSERT_NE(map, nullptr);
    for (const kernels::Reach reach : {kernels::Reach::kHost, kernels::Reach::kNone}) {
      const Example made = (*map)(batch, reach);
      EXPECT_TRUE(torch::equal(made.x, torch::stack(wanted))) << "by reach " << static_cast<int>(reach);
      EXPECT_TRUE(made.more.empty());
      Example strided = batch;
      strided.x = batch.x.contiguous(torch::MemoryFormat::ChannelsLast);
      EXPECT_TRUE(torch::equal((*map)(strided, reach).x, made.x));
      EXPECT_EQ((*map)(batch.rows(0, 0), reach).x.size(0), 0);
    }
  }
}

TEST(DeviceImages, EveryInstructionSetGivesTheSameBits) {
  constexpr int64_t kSide = 37;
  const torch::Tensor x = torch::randint(0, 256, {3, 2, kSide, kSide}, torch::kByte);
  const torch::Tensor draws = torch::tensor({{0, 0, 0}, {2, 5, 1}, {7, 1, 0}}, torch::kLong);
  kernels::PictureArgs args{.from = x.data_ptr<uint8_t>(),
                            .strides = {2 * kSide * kSide, kSide * kSide, kSide, 1},
                            .channels = 2,
                            .in_height = kSide,
                            .in_width = kSide,
                            .height = 33,
                            .width = 35,
                            .padding = 3,
                            .draws = draws.data_ptr<int64_t>(),
                            .factors = {0.0173F, 0.0169F},
                            .offsets = {2.1F, 1.9F}};
  std::vector<torch::Tensor> results;
  for (const kernels::Isa isa : kernels::kIsas) {
    if (!kernels::runs(isa)) continue;
    results.push_back(torch::empty({3, 2, 33, 35}));
    kernels::picture_table(isa).crop_flip_normalize(results.back().data_ptr<float>(), 3, args);
    EXPECT_TRUE(torch::equal(results.back(), results.front())) << name(isa);
  }
}

// A pipeline of 23 pictures in batches of 6, its pictures changed by the images or by the functions.
Dataset pipeline(const DeviceImageOptions& options, bool on_device) {
  const torch::Tensor x = torch::cat({pictures(3), pictures(3), pictures(3)}).narrow(0, 0, 23);
  const Dataset all = Dataset::from_tensor_slices(x, torch::arange(23)).shuffle(9, {.seed = 4});
  if (on_device) {
    const DeviceImages images(options);
    return images.finish(all.random_map(images, {.seed = 7}).batch(6)).repeat(2).prefetch(2).skip(1).take(6);
  }
  const auto change = [options](Example example, at::Generator generator) {
    example.x = changed_on_host(example.x, std::move(generator), options);
    return example;
  };
  return all.random_map(change, {.seed = 7}).batch(6).repeat(2).prefetch(2).skip(1).take(6);
}

TEST(DeviceImages, AreChangedOnTheHostWithoutAStrategyAndBehindOtherTransformations) {
  const DeviceImageOptions options = cropped(9, 7, {.padding = 2});
  const Dataset device = pipeline(options, true);
  EXPECT_NE(device.node()->left_to_devices().map, nullptr);
  const Dataset mapped = device.map([](Example batch) {
    batch.x = batch.x * 2.0;
    return batch;
  });
  EXPECT_EQ(mapped.node()->left_to_devices().map, nullptr);
  Iterator also = mapped.iterator({.epoch = 0});
  Iterator there = device.iterator({.epoch = 0});
  for (const Example& wanted : pipeline(options, false)) {
    const auto batch = there.next();
    ASSERT_TRUE(batch);
    EXPECT_TRUE(torch::equal(batch->x, wanted.x));
    EXPECT_TRUE(torch::equal(batch->y, wanted.y));
    EXPECT_TRUE(torch::equal(also.next()->x, wanted.x * 2.0));
  }
  EXPECT_FALSE(there.next());
}

std::vector<Example> shares_of(DistributedIterator batches) {
  std::vector<Example> shares;
  while (const auto batch = batches.next()) {
    for (std::size_t r = 0; r < batch->size(); ++r) shares.push_back((*batch)[r]);
  }
  return shares;
}

void expect_same(const std::vector<Example>& shares, const std::vector<Example>& wanted) {
  ASSERT_EQ(shares.size(), wanted.size());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    EXPECT_TRUE(torch::equal(shares[i].x, wanted[i].x)) << i;
    EXPECT_TRUE(torch::equal(shares[i].y, wanted[i].y)) << i;
    EXPECT_TRUE(shares[i].more.empty());
  }
}

TEST(DeviceImages, SharesHaveTheBitsOfTheHost) {
  const DeviceImageOptions options = cropped(9, 7, {.padding = 2, .padding_mode = PaddingMode::kEdge});
  const Strategy cpus = MirroredStrategy({.devices = cpu_devices(2)});
  for (const AutoShard shard : {AutoShard::kData, AutoShard::kOff}) {
    const InputOptions input{.auto_shard = shard};
    const auto wanted = shares_of(cpus.distribute(pipeline(options, false), input).iterator());
    expect_same(shares_of(cpus.distribute(pipeline(options, true), input).iterator()), wanted);
    // A device that records, with late copies: the host has changed the pictures before.
    const testing::FakeDevice device(milliseconds(1));
    std::vector<LogicalDevice> devices;
    for (const std::string& name : cpu_devices(2)) devices.push_back(find_logical_device(name));
    StrategyPlan plan = local_plan("fake", devices);
    plan.backends = {&device, &device};
    const auto fake = Access::make<Strategy>(std::make_shared<StrategyCore>(std::move(plan)));
    expect_same(shares_of(fake.distribute(pipeline(options, true), input).iterator()), wanted);
  }
}

TEST(DeviceImages, ARestoredPositionHasThePicturesChangedOnce) {
  const DeviceImageOptions options = cropped(9, 7, {.padding = 2});
  const Strategy cpus = MirroredStrategy({.devices = cpu_devices(2)});
  const DistributedDataset data = cpus.distribute(pipeline(options, true), {.prefetch_steps = 3});
  DistributedIterator first = data.iterator();
  ASSERT_TRUE(first.next());
  const std::string position = first.save();
  DistributedIterator second = data.iterator();
  second.restore(position);
  const auto rest = shares_of(std::move(first));
  EXPECT_EQ(rest.size(), 10U);
  expect_same(shares_of(std::move(second)), rest);
}

TEST(DeviceImages, WhatDoesNotFitIsAnError) {
  const auto made = [](const DeviceImageOptions& options) { return [options] { (void)DeviceImages(options); }; };
  expect_error<InvalidArgument>(made({}), "0 means and 0 deviations, wanted as many, of 1 to 16 channels");
  expect_error<InvalidArgument>(made({.mean = {0.5}, .deviation = {0.5, 0.5}}), "1 means and 2 deviations");
  expect_error<InvalidArgument>(made({.flip_probability = 1.5, .mean = {0.5}, .deviation = {0.5}}),
                                "flip_probability is 1.5, wanted 0 to 1");
  expect_error<InvalidArgument>(made({.mean = {0.5}, .deviation = {0.5}, .dtype = torch::kLong}), "dtype is Long");
  DeviceImageOptions planes = only_normalized();
  planes.planes = true;
  expect_error<InvalidArgument>(made(planes), "planes of 3 channels");

  const DeviceImages images(cropped(9, 7, {}));
  expect_error<InvalidArgument>([&] { (void)images({.x = pictures(3)[0].narrow(1, 0, 5)}, make_host_generator(1)); },
                                "9 x 7 of an image of 5 x 8");
  expect_error<InvalidArgument>([&] { (void)images.finish(Dataset::range(3)); }, "finish() takes batches");
  const auto batch_of = [&](const Example& each) {
    return [&images, each] { (void)images.finish(Dataset::from_tensors(each).batch(2)).iterator().next(); };
  };
  expect_error<InvalidArgument>(batch_of({.x = torch::zeros({3, 9, 8})}), "x is Float [1, 3, 9, 8], wanted uint8");
  expect_error<InvalidArgument>(batch_of({.x = pictures(1)[0]}), "wanted uint8 [examples, 3, height, width]");
  expect_error<InvalidArgument>(batch_of({.x = pictures(3)[0]}), "the last column of `more` is nothing, wanted int64");
}

}  // namespace
}  // namespace cohort::device_images_test
