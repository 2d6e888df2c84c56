// Values that are divided among the cores of a replica: the annotation's text, and what runs on XLA's plugin for CPUs.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/xla.h"
#include "wings/xla/device/runner.h"
#include "wings/xla/record/recorder.h"
#include "wings/xla/record/stablehlo/lower.h"

namespace cohort::record {
namespace sharding_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;

const torch::Device kDevice(torch::kXLA, 0);

class ShardingTest : public testing::XlaCpuTest {
 protected:
  void SetUp() override {
    XlaCpuTest::SetUp();
    if (!plugin_) return;
    install_recorder({.devices = 4});
    client_ = client(4);
    runner_ = make_xla_runner(client_);
    set_runner(runner_);
    torch::manual_seed(1);
  }
  void TearDown() override { set_runner(nullptr); }

  XlaClientPtr client_;
  std::shared_ptr<XlaRunner> runner_;
};

torch::Tensor on(const torch::Tensor& host, int device) {
  return host.to(torch::Device(torch::kXLA, static_cast<c10::DeviceIndex>(device)));
}

// The rest of a convolution with stride 2 on an image with odd sides, whose gradients are those of its arguments.
std::vector<torch::Tensor> convolved(const torch::Tensor& x, const torch::Tensor& w) {
  const torch::Tensor y = torch::conv2d(x, w, {}, 2, 1);
  y.tanh().sum().backward();
  return {y.detach(), x.grad(), w.grad()};
}

TEST_F(ShardingTest, TheTextCutsTheValueAndItsGradient) {
  const torch::Tensor x = torch::randn({1, 3, 5, 7}).to(kDevice).requires_grad_();
  shard(x, {1, 1, 2, 3}).pow(2).sum().backward();
  const Captured captured = recording_of(kDevice).capture(std::vector<torch::Tensor>{x.grad()});
  const std::string text = to_stablehlo(*captured.program, {.num_cores = 6});
  EXPECT_THAT(text, HasSubstr("mhlo.num_partitions = 6"));
  EXPECT_THAT(text, HasSubstr("sdy.mesh @cores = <[\"core\"=6]>"));
  const std::string cut = "<@cores, [{}, {}, {\"core\":(1)2}, {\"core\":(2)3}]> : tensor<1x3x5x7xf32>";
  const std::size_t forward = text.find("sdy.sharding_constraint %arg0 " + cut);
  ASSERT_NE(forward, std::string::npos) << text;
  EXPECT_NE(text.find(cut, forward + 40), std::string::npos) << text;
  const std::string whole = "tensor<1x3x5x7xf32> {sdy.sharding = #sdy.sharding<@cores, [{}, {}, {}, {}]>}";
  EXPECT_THAT(text, HasSubstr("%arg0: " + whole));
  EXPECT_THAT(text, HasSubstr("-> (" + whole));
  const std::string alone =
      to_stablehlo(*recording_of(kDevice).capture(std::vector<torch::Tensor>{x * 2}).program, {.num_cores = 1});
  EXPECT_THAT(alone, Not(HasSubstr("sdy")));
}

TEST_F(ShardingTest, ADimensionThatTakesAllCores) {
  const torch::Tensor y = shard(torch::randn({4, 2}).to(kDevice), {2, 1}) + shard(torch::ones({4, 2}, kDevice), {1, 1});
  const Captured captured = recording_of(kDevice).capture(std::vector<torch::Tensor>{y});
  const std::string text = to_stablehlo(*captured.program, {.num_cores = 2});
  EXPECT_THAT(text, HasSubstr("<@cores, [{\"core\"}, {}]>"));
  EXPECT_THAT(text, HasSubstr("<@cores, [{}, {}]> : tensor"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { to_stablehlo(*captured.program, {.num_cores = 4}); }),
              HasSubstr("cut in [2, 1] tiles, which are 2, but the program runs on 4 core(s) a replica"));
}

TEST_F(ShardingTest, WrongAnnotations) {
  const torch::Tensor x = torch::ones({2, 3}, kDevice);
  for (const std::vector<int64_t>& tiles : {std::vector<int64_t>{2}, {2, 0}, {1, 1, 2}}) {
    EXPECT_THAT(error_of<InvalidArgument>([&] { shard(x, tiles); }), HasSubstr("wanted a recorded one and a number"));
  }
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                shard(torch::ones({2, 3}), {1, 2});
              }),
              HasSubstr("on cpu was to be cut"));
}

TEST_F(ShardingTest, AConvolutionOverOddSides) {
  const torch::Tensor x = torch::randn({3, 2, 9, 7}, torch::kDouble);
  const torch::Tensor w = torch::randn({4, 2, 3, 3}, torch::kDouble);
  const auto wanted = convolved(x.clone().requires_grad_(), w.clone().requires_grad_());
  for (const std::vector<int64_t>& tiles :
       {std::vector<int64_t>{1, 1, 2, 1}, {1, 1, 1, 2}, {1, 1, 2, 2}, {4, 1, 1, 1}}) {
    const int cores = tiles[2] * tiles[3] == 4 || tiles[0] == 4 ? 4 : 2;
    std::vector<int> list;
    for (int core = 0; core < cores; ++core) list.push_back(core);
    const auto hold = runner_->hold_cores({list});
    const torch::Tensor own = on(x, 0).requires_grad_();
    const torch::Tensor kernel = on(w, 0).requires_grad_();
    const torch::Tensor y = torch::conv2d(shard(own, tiles), kernel, {}, 2, 1);
    y.tanh().sum().backward();
    const std::vector<torch::Tensor> results = {y.detach(), own.grad(), kernel.grad()};
    if (tiles[2] == 2) {
      const Captured captured = recording_of(kDevice).capture(results);
      const auto program =
          client_->compile(to_stablehlo(*captured.program, {.num_cores = cores}), {.num_partitions = cores});
      bool halos = false;
      for (const XlaCollective& each : program->program().collectives()) halos |= each.name == "collective-permute";
      EXPECT_TRUE(halos) << program->program().hlo_text();
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_LT((fetch(results[i]) - wanted[i]).abs().max().item<double>(), 1e-12) << i << tiles;
    }
  }
}

// The gradient of a part of an image, which is written into zeros, and goes on into a convolution's kernel.
TEST_F(ShardingTest, AGradientThatIsAPartOfAnImage) {
  const torch::Tensor x = torch::randn({2, 5, 7, 6}, torch::kDouble);
  const torch::Tensor w = torch::randn({5, 4, 2, 2}, torch::kDouble);
  const auto hold = runner_->hold_cores({{0, 1, 2, 3}});
  const auto gradient = [&](const torch::Tensor& image, const torch::Tensor& kernel, bool cut) {
    const torch::Tensor up = torch::conv_transpose2d(cut ? shard(image, {1, 1, 2, 2}) : image, kernel, {}, 2);
    up.slice(2, 0, 13).tanh().sum().backward();
    return kernel.grad();
  };
  const torch::Tensor wanted = gradient(x, w.clone().requires_grad_(), false);
  const torch::Tensor own = gradient(on(x, 0), on(w, 0).requires_grad_(), true);
  EXPECT_LT((fetch(own) - wanted).abs().max().item<double>(), 1e-12);
}

// Two replicas of two cores, which are not neighbours: weights are updated in place by the sum over the replicas.
TEST_F(ShardingTest, ReplicasOfTwoCoresTakeStepsTogether) {
  const auto hold = runner_->hold_cores({{3, 1}, {0, 2}});
  const std::vector<torch::Device> devices = {torch::Device(torch::kXLA, 3), torch::Device(torch::kXLA, 0)};
  torch::Tensor wanted = torch::ones({3}, torch::kDouble);
  std::vector<torch::Tensor> weights;
  for (const torch::Device device : devices) weights.push_back(wanted.to(device));
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor rows = torch::randn({10, 3}, torch::kDouble);
    for (std::size_t r = 0; r < 2; ++r) {
      const torch::Tensor share = put(rows.narrow(0, static_cast<int64_t>(r) * 5, 5), devices[r]);
      weights[r].sub_(all_reduce(shard(share, {2, 1}).mul(weights[r]).sum(0)), 0.1);
    }
    flush_together(devices);
    wanted.sub_(rows.mul(wanted).sum(0), 0.1);
  }
  for (const torch::Tensor& weight : weights) EXPECT_LT((fetch(weight) - wanted).abs().max().item<double>(), 1e-12);
}

TEST_F(ShardingTest, TheMemoryOfWeightsIsGivenAway) {
  const torch::Tensor w = torch::ones({4, 3}, kDevice);
  recording_of(kDevice).flush();
  const Value before = value_of(w);
  w.add_(shard(torch::ones({4, 3}, kDevice), {2, 1}));
  const Captured captured = recording_of(kDevice).capture(std::vector<torch::Tensor>{w}, std::vector<Value>{before});
  const std::string text = to_stablehlo(*captured.program, {.num_cores = 2});
  EXPECT_THAT(text, HasSubstr("{tf.aliasing_output = 0 : i32, sdy.sharding"));
  const auto program = client_->compile(text, {.num_partitions = 2});
  EXPECT_THAT(program->program().signature()->donated[0], true);
}

TEST_F(ShardingTest, CoresDrawTheNumbersOfOne) {
  const auto drawn = [](bool cut) {
    recording_of(kDevice).manual_seed(7);
    torch::Tensor x = torch::empty({6, 5}, kDevice).uniform_();
    if (cut) x = shard(x, {2, 1});
    return fetch(x.mul(2));
  };
  const torch::Tensor alone = drawn(false);
  const auto hold = runner_->hold_cores({{0, 1}});
  EXPECT_TRUE(alone.equal(drawn(true)));
}

TEST_F(ShardingTest, AValueFollowsItsDeviceToMoreCores) {
  const torch::Tensor x = torch::arange(6, kDevice).reshape({2, 3}).clone();
  recording_of(kDevice).flush();
  torch::Tensor y;
  {
    const auto hold = runner_->hold_cores({{0, 3}});
    y = shard(x, {2, 1}) + 1;
    recording_of(kDevice).flush();
    EXPECT_TRUE(fetch(y).equal(torch::arange(1, 7).reshape({2, 3})));
  }
  EXPECT_TRUE(fetch(y + x).equal(torch::arange(0, 6).reshape({2, 3}) * 2 + 1));
}

TEST_F(ShardingTest, CoresThatCannotBeGiven) {
  const auto refused = [&](const std::vector<std::vector<int>>& replicas) {
    return error_of<InvalidArgument>([&] { runner_->hold_cores(replicas); });
  };
  EXPECT_THAT(refused({{0, 4}}), HasSubstr("the cores [0, 4] of a replica are wanted, and there are xla:0 to xla:3"));
  EXPECT_THAT(refused({{0, 1}, {1, 2}}), HasSubstr("the core xla:1 is named twice"));
  EXPECT_THAT(refused({{0, 1}, {2}}), HasSubstr("a replica has 1 core(s), the first one 2"));
  EXPECT_THAT(refused({{}}), HasSubstr("one at least"));
  const auto hold = runner_->hold_cores({{0, 1}});
  const auto again = runner_->hold_cores({{0, 1}});
  EXPECT_THAT(error_of<FailedPrecondition>([&] { runner_->hold_cores({{0}}); }),
              HasSubstr("xla:0 was to run on the cores [0], but a strategy that lives has it run on [0, 1]"));
  const std::vector<torch::Device> devices = {torch::Device(torch::kXLA, 0), torch::Device(torch::kXLA, 2)};
  std::vector<torch::Tensor> sums;
  for (const torch::Device device : devices) sums.push_back(all_reduce(torch::ones({2}, device)));
  EXPECT_THAT(error_of<FailedPrecondition>([&] { flush_together(devices); }), HasSubstr("not as many each"));
}

}  // namespace
}  // namespace sharding_test
}  // namespace cohort::record
