// Steps that are held back and begin as one loop: which do, when they begin, and what a loop is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/xla/record/host_runner.h"
#include "wings/xla/record/gathering.h"
#include "wings/xla/record/recorder.h"
#include "wings/xla/record/stablehlo/lower.h"

namespace cohort::record {
namespace gathering_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMuch = int64_t{1} << 30;
const std::vector<torch::Device> kDevices = {torch::Device(torch::kXLA, 0), torch::Device(torch::kXLA, 1)};

// The host's runner, which can be told to fail.
class Failing final : public HostRunner {
 public:
  std::vector<Values> run_replicas(const std::shared_ptr<const Program>& program, std::span<const Values> inputs,
                                   std::span<const int> devices) override {
    if (fails) throw Unavailable("the device is lost");
    return HostRunner::run_replicas(program, inputs, devices);
  }
  bool fails = false;
};

// A weight on each device, and a step whose gradient is the sum over the rows of both.
class GatheringTest : public ::testing::Test {
 protected:
  GatheringTest() {
    install_recorder({.devices = 2});
    set_runner(runner_);
    torch::manual_seed(1);
    for (const torch::Device device : kDevices) weights_.push_back(torch::ones({3}, device));
    flush_together(kDevices);
    before_ = runner_->ran().size();
  }
  ~GatheringTest() override {
    runner_->fails = false;
    gather_steps(kDevices, 1, kMuch);
    set_runner(nullptr);
  }

  // Makes a step with these rows, and the same to the weight of the host. Returns the sums of the weights before it.
  std::vector<torch::Tensor> step(const torch::Tensor& rows, double rate = 0.1) {
    std::vector<torch::Tensor> sums;
    for (std::size_t r = 0; r < 2; ++r) {
      const torch::Tensor own = rows.narrow(0, static_cast<int64_t>(r) * 2, 2).to(kDevices[r]);
      sums.push_back(weights_[r].sum());
      weights_[r].sub_(all_reduce(own.mul(weights_[r]).sum(0)), rate);
    }
    flush_together(kDevices);
    wanted_.sub_(rows.mul(wanted_).sum(0), rate);
    return sums;
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step(torch::randn({4, 3}), 0.01 * (i + 1));
  }
  void expect_wanted() const {
    for (const torch::Tensor& weight : weights_) EXPECT_TRUE(weight.cpu().allclose(wanted_)) << weight.cpu();
  }

  // For each launch so far how many steps it had room for; 0: no loop.
  std::vector<int64_t> launches() const {
    std::vector<int64_t> rooms;
    for (std::size_t i = before_; i < runner_->ran().size(); ++i) {
      const auto& loop = runner_->ran()[i]->loop();
      rooms.push_back(loop == nullptr ? 0 : loop->most);
    }
    return rooms;
  }

  std::shared_ptr<Failing> runner_ = std::make_shared<Failing>();
  std::vector<torch::Tensor> weights_;
  torch::Tensor wanted_ = torch::ones({3});
  std::size_t before_ = 0;
};

TEST_F(GatheringTest, StepsThatAreAlikeAreOneLaunch) {
  for (int loop = 0; loop < 2; ++loop) {
    gather_steps(kDevices, 5, kMuch);
    steps(4);
    EXPECT_EQ(gathered_steps(), 4);
    steps(1);
    EXPECT_EQ(gathered_steps(), 0);
  }
  steps(1);  // more than were announced
  EXPECT_THAT(launches(), ElementsAre(5, 5, 0));
  EXPECT_EQ(runner_->ran()[before_], runner_->ran()[before_ + 1]);
  expect_wanted();
}

TEST_F(GatheringTest, WhatAStepHasForItselfIsFreshAndTheWeightIsCarried) {
  gather_steps(kDevices, 3, kMuch);
  steps(3);
  const Loop& loop = *runner_->ran().back()->loop();
  std::vector<Feed::Kind> kinds;
  for (const Feed& feed : loop.feeds) kinds.push_back(feed.kind);
  // The rows, the weight, the rate.
  EXPECT_THAT(kinds, ::testing::UnorderedElementsAre(Feed::Kind::kFresh, Feed::Kind::kCarried, Feed::Kind::kFresh));
  EXPECT_EQ(count_inputs(loop), 3 + 1 + 3 + 1);
  EXPECT_THAT(loop.kept, ElementsAre());
  // The weight keeps its memory.
  const std::vector<int>& aliases = runner_->ran().back()->aliases();
  EXPECT_EQ(std::count_if(aliases.begin(), aliases.end(), [](int input) { return input >= 0; }), 1);
}

TEST_F(GatheringTest, AConstantIsGivenOnce) {
  const torch::Tensor rows = torch::randn({2, 3});
  const std::vector<torch::Tensor> own = {rows.to(kDevices[0]), rows.to(kDevices[1])};
  gather_steps(kDevices, 4, kMuch);
  for (int i = 0; i < 4; ++i) {
    for (std::size_t r = 0; r < 2; ++r) weights_[r].sub_(all_reduce(own[r].mul(weights_[r]).sum(0)), 0.1);
    flush_together(kDevices);
    wanted_.sub_(rows.mul(wanted_).sum(0) * 2, 0.1);
  }
  EXPECT_THAT(launches(), ElementsAre(4));
  EXPECT_EQ(count_inputs(*runner_->ran().back()->loop()), 1 + 1 + 4 + 1);
  expect_wanted();
}

TEST_F(GatheringTest, AValueThatIsReadBeginsWhatHasCome) {
  gather_steps(kDevices, 5, kMuch);
  steps(2);
  expect_wanted();
  EXPECT_THAT(launches(), ElementsAre(5));  // two of five
  steps(3);
  EXPECT_THAT(launches(), ElementsAre(5, 5));
  EXPECT_EQ(runner_->ran()[before_], runner_->ran()[before_ + 1]);
  expect_wanted();
}

TEST_F(GatheringTest, OneStepIsItsOwnProgram) {
  gather_steps(kDevices, 5, kMuch);
  steps(1);
  expect_wanted();
  EXPECT_THAT(launches(), ElementsAre(0));
}

TEST_F(GatheringTest, ValuesOfEarlierStepsAreThereForWhoHasThem) {
  gather_steps(kDevices, 4, kMuch);
  std::vector<torch::Tensor> held;
  std::vector<torch::Tensor> sums;
  for (int i = 0; i < 4; ++i) {
    sums.push_back(wanted_.sum());
    const std::vector<torch::Tensor> own = step(torch::randn({4, 3}));
    if (i != 1) held.push_back(own[1]);
  }
  EXPECT_THAT(launches(), ElementsAre(4));
  EXPECT_EQ(runner_->ran().back()->loop()->kept.size(), 1U);
  EXPECT_TRUE(held[0].cpu().allclose(sums[0]));
  EXPECT_TRUE(held[1].cpu().allclose(sums[2]));
  EXPECT_TRUE(held[2].cpu().allclose(sums[3]));
  expect_wanted();
}

TEST_F(GatheringTest, AnotherProgramBeginsWhatHasCome) {
  gather_steps(kDevices, 6, kMuch);
  steps(2);
  const torch::Tensor rows = torch::randn({4, 5}).narrow(1, 0, 3);
  for (std::size_t r = 0; r < 2; ++r) {  // no sum over the replicas
    weights_[r].sub_(rows.narrow(0, 0, 2).to(kDevices[r]).sum(0), 0.1);
  }
  flush_together(kDevices);
  wanted_.sub_(rows.narrow(0, 0, 2).sum(0), 0.1);
  steps(3);
  EXPECT_THAT(launches(), ElementsAre(6, 0, 6));
  expect_wanted();
}

TEST_F(GatheringTest, SharesOfDifferentSizesFallOut) {
  gather_steps(kDevices, 4, kMuch);
  steps(2);
  const torch::Tensor rows = torch::randn({4, 3});
  for (std::size_t r = 0; r < 2; ++r) {
    const torch::Tensor own = r == 0 ? rows.narrow(0, 0, 3) : rows.narrow(0, 3, 1);
    weights_[r].sub_(all_reduce(own.to(kDevices[r]).mul(weights_[r]).sum(0)), 0.1);
  }
  flush_together(kDevices);
  wanted_.sub_(rows.mul(wanted_).sum(0), 0.1);
  EXPECT_THAT(launches(), ElementsAre(4, 0, 0, 0, 0));
  steps(2);
  expect_wanted();
}

TEST_F(GatheringTest, LoopsAreCutByTheBytesOfTheirInput) {
  // A step has 2 x 3 floats and a number.
  gather_steps(kDevices, 7, 28 * 3);
  steps(7);
  EXPECT_THAT(launches(), ElementsAre(3, 3, 0));
  expect_wanted();
  gather_steps(kDevices, 2, 1);
  steps(2);
  EXPECT_THAT(launches(), ElementsAre(3, 3, 0, 0, 0));
  expect_wanted();
}

TEST_F(GatheringTest, ALaunchThatFailsFailsEverybodyWhoWantsItsValues) {
  gather_steps(kDevices, 4, kMuch);
  steps(3);
  runner_->fails = true;
  EXPECT_THROW((void)weights_[0].cpu(), Unavailable);
  const auto read = [&] { (void)weights_[1].cpu(); };
  runner_->fails = false;
  ::cohort::testing::expect_error<FailedPrecondition>(read, "the device is lost");
  // So does a step that goes on from there.
  ::cohort::testing::expect_error<FailedPrecondition>([&] { steps(1); }, "the device is lost");
}

TEST_F(GatheringTest, WhatIsPendingIsNoPartOfTheFirstStep) {
  for (const torch::Tensor& weight : weights_) weight.mul_(2.0);
  wanted_.mul_(2.0);
  gather_steps(kDevices, 3, kMuch);
  steps(3);
  EXPECT_THAT(launches(), ElementsAre(0, 3));
  expect_wanted();
}

TEST_F(GatheringTest, AnotherRunnerBeginsWhatHasCome) {
  gather_steps(kDevices, 3, kMuch);
  steps(2);
  set_runner(runner_);
  EXPECT_THAT(launches(), ElementsAre(3));
  expect_wanted();
}

TEST_F(GatheringTest, TheTextHasAWhile) {
  gather_steps(kDevices, 3, kMuch);
  const auto held = step(torch::randn({4, 3}));
  steps(2);
  const std::string text = to_stablehlo(*runner_->ran().back(), {.num_replicas = 2});
  EXPECT_THAT(text, HasSubstr("func.func private @step("));
  EXPECT_THAT(text, HasSubstr("stablehlo.while("));
  EXPECT_THAT(text, HasSubstr("stablehlo.concatenate"));
  EXPECT_THAT(text, HasSubstr("dynamic_slice"));
  EXPECT_THAT(text, HasSubstr("stablehlo.optimization_barrier"));
  EXPECT_THAT(text, HasSubstr("dynamic_update_slice"));  // the sum that is held
  EXPECT_THAT(text, HasSubstr("tf.aliasing_output"));
}

}  // namespace
}  // namespace gathering_test
}  // namespace cohort::record
