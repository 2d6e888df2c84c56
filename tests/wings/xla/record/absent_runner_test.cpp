// Recording for a device that is not here.
#include "wings/xla/record/absent_runner.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "wings/xla/record/recorder.h"

namespace cohort::record::absent_runner_test {
namespace {

const torch::Device kDevice(torch::kXLA, 0);

class AbsentRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    install_recorder({.devices = 2});
    set_runner(make_absent_runner());
  }
  void TearDown() override { set_runner(nullptr); }

  // Adds the sum over the replicas to w.
  static void step(torch::Tensor& w) {
    w.add_(all_reduce(w * 2.0));
    flush_together({&kDevice, 1});
  }
};

TEST_F(AbsentRunnerTest, GivesBackWhatWasPlacedAndZerosForTheRest) {
  const torch::Tensor x = torch::arange(3.0);
  const torch::Tensor there = x.to(kDevice);
  EXPECT_TRUE(there.cpu().equal(x));
  EXPECT_TRUE((there + 1.0).cpu().equal(torch::zeros({3})));
}

TEST_F(AbsentRunnerTest, EndsAtAStepWithItsProgram) {
  torch::Tensor w = torch::ones({3}).to(kDevice);
  try {
    step(w);
    FAIL() << "wanted StepRecorded";
  } catch (const StepRecorded& recorded) {
    const auto& all = recorded.program()->operations();
    EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const Operation& each) { return each.op == kAllReduceOp; }), 1);
    EXPECT_EQ(recorded.program()->aliases(), std::vector<int>{0}) << "w is written where it was";
  }
}

}  // namespace
}  // namespace cohort::record::absent_runner_test
