// What a function records, as a plan that runs again: which tensors it reads and writes, whose memory it takes over,
// what it leaves behind, when it cannot be run any more.
#include "wings/xla/record/function_recording.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/xla/record/host_runner.h"

namespace cohort::record {
namespace function_recording_test {
namespace {

using testing::expect_error;
using Tensors = std::vector<torch::Tensor>;

const torch::Device kDevice(torch::kXLA, 0);

bool same(const torch::Tensor& recorded, const torch::Tensor& wanted) {
  return recorded.to(torch::kCPU).equal(wanted);
}

class FunctionRecordingTest : public ::testing::Test {
 protected:
  FunctionRecordingTest() {
    install_recorder({.devices = 2});
    set_runner(runner_);
    (void)recording().random_state();
  }
  ~FunctionRecordingTest() override { set_runner(nullptr); }

  static Recording& recording() { return recording_of(kDevice); }

  // Records a function of one tensor.
  template <typename Fn>
  static std::shared_ptr<Plan> record(const Fn& fn) {
    FunctionRecording recorded(recording(), "the function step");
    const torch::Tensor x = recorded.argument({torch::kFloat, {2}}, false);
    Tensors results;
    results.push_back(fn(x));  // a list in braces would keep the result until the end
    return recorded.finish(std::move(results));
  }

  std::shared_ptr<HostRunner> runner_ = std::make_shared<HostRunner>();
};

torch::Tensor floats(double value) {
  return torch::full({2}, value).to(kDevice);
}

// LibTorch's thread holds them until it waits for the next backward.
TEST_F(FunctionRecordingTest, GradientsThatAreGivenUpAreNotLeft) {
  const torch::Tensor w = floats(1).requires_grad_();
  int left = 0;
  for (int i = 0; i < 200; ++i) {
    const auto plan =
        record([&](const torch::Tensor& x) { return torch::autograd::grad({(w * x).sum()}, {w}).front() + 1; });
    if (plan->leaves_tensors()) ++left;
  }
  EXPECT_EQ(left, 0);
}

TEST_F(FunctionRecordingTest, ReadsAndWritesTheTensorsThemselves) {
  const torch::Tensor w = floats(1);
  const torch::Tensor other = floats(10) + 0;  // its value waits
  const auto plan = record([&](const torch::Tensor& x) {
    w.add_(x);
    return w * other;
  });
  EXPECT_TRUE(same(w, torch::full({2}, 1.0)));
  EXPECT_EQ(plan->program()->outputs().size(), 2U);
  EXPECT_TRUE(same(plan->run(Tensors{floats(2)})[0], torch::full({2}, 30.0)));
  w.mul_(2);
  other.fill_(1);
  EXPECT_TRUE(same(plan->run(Tensors{floats(1)})[0], torch::full({2}, 7.0)));
  EXPECT_TRUE(same(w, torch::full({2}, 7.0)));
  EXPECT_EQ(runner_->ran().back(), plan->program());
}

TEST_F(FunctionRecordingTest, TakesMemoryOverOnlyFromWhoHasItAlone) {
  const torch::Tensor w = floats(1);
  const auto plan = record([&](const torch::Tensor& x) { return w.add_(x).sum(); });
  const auto& aliases = plan->program()->aliases();
  EXPECT_EQ(std::count_if(aliases.begin(), aliases.end(), [](int a) { return a >= 0; }), 1);
  const torch::Tensor x = floats(1);
  recording().flush();
  const torch::Tensor before = w.clone();
  const auto runs = [&](std::size_t programs) {
    const std::size_t had = runner_->ran().size();
    plan->run(Tensors{x});
    EXPECT_EQ(runner_->ran().size() - had, programs);
  };
  runs(2);  // the clone has the value, too: w's is copied first
  EXPECT_TRUE(same(before, torch::full({2}, 1.0)));
  runs(1);
  const torch::Tensor later = w * 3;  // waits, and reads what w is now
  runs(2);
  EXPECT_TRUE(same(later, torch::full({2}, 9.0)));
  EXPECT_TRUE(same(w, torch::full({2}, 4.0)));
  EXPECT_TRUE(same(w.slice(0, 1), torch::full({1}, 4.0)));  // a view that was read does not count
  runs(1);
}

TEST_F(FunctionRecordingTest, FollowsLayoutsThatChange) {
  const torch::Tensor w = torch::arange(6, torch::kFloat).view({2, 3}).to(kDevice);
  torch::Tensor host = torch::arange(6, torch::kFloat).view({2, 3});
  const auto recorded = [&] {
    FunctionRecording step(recording(), "the function step");
    w.t().copy_((w.t() + 1).contiguous());
    return step.finish({});
  };
  const auto plan = recorded();
  for (int i = 0; i < 3; ++i) {
    plan->run({});
    host.add_(1);
    EXPECT_TRUE(same(w, host)) << i;
  }
}

// A weight that a part of the function moves by a rate of the host, which doubles from run to run.
struct Moved {
  std::shared_ptr<Plan> record() {
    FunctionRecording recorded(recording_of(kDevice), "the function step");
    const torch::Tensor x = recorded.argument({torch::kFloat, {2}}, false);
    const torch::Tensor twice = x * 3;  // a number that stays
    FunctionRecording::add_part([&] { move(weight, twice); }, part());
    rate *= 2;
    return recorded.finish({});
  }
  void move(torch::Tensor to, const torch::Tensor& by) const {
    to.add_(by, rate);
    if (rate > 4) to.mul_(7.0);
  }
  HostPart part() {
    const auto again = [this]() -> std::optional<HostPart::Again> {
      if (is_gone) return std::nullopt;
      const torch::Tensor stands = make_parameter({torch::kFloat, {2}}, kDevice);
      move(stands, make_parameter({torch::kFloat, {2}}, kDevice));
      rate *= 2;
      return HostPart::Again{.written = {stands}, .numbers = {}};
    };
    return {.again = again, .undo = [this] { rate /= 2; }};
  }

  torch::Tensor weight = floats(0);
  double rate = 0.25;
  bool is_gone = false;
};

TEST_F(FunctionRecordingTest, APartHasTheNumbersOfEachRun) {
  Moved moved;
  const auto plan = moved.record();
  EXPECT_EQ(moved.rate, 0.25);  // nothing has run
  double wanted = 0;
  for (const double rate : {0.25, 1.5}) {
    moved.rate = rate;
    ASSERT_TRUE(plan->renew_numbers());
    EXPECT_EQ(moved.rate, rate * 2);
    plan->run(Tensors{floats(1)});
    wanted += 3 * rate;
    EXPECT_TRUE(same(moved.weight, torch::full({2}, wanted))) << rate;
  }
  plan->undo_numbers();
  EXPECT_EQ(moved.rate, 1.5);
}

TEST_F(FunctionRecordingTest, APartThatChangesIsRecordedAgain) {
  Moved moved;
  const auto plan = moved.record();
  moved.rate = 5;  // another operation
  EXPECT_FALSE(plan->renew_numbers());
  EXPECT_EQ(moved.rate, 5);
  const auto other = moved.record();
  ASSERT_TRUE(other->renew_numbers());
  other->run(Tensors{floats(1)});
  EXPECT_TRUE(same(moved.weight, torch::full({2}, 3.0 * 5 * 7)));
  moved.is_gone = true;
  EXPECT_FALSE(other->renew_numbers());
}

TEST_F(FunctionRecordingTest, KnowsWhatItLeavesBehind) {
  torch::Tensor left;
  torch::Tensor constant;
  const auto make = [&](const torch::Tensor& x) {
    left = x * 2;
    constant = torch::ones({2}).to(kDevice);
    return x + constant;
  };
  const auto plan = record(make);
  EXPECT_TRUE(plan->leaves_tensors());
  EXPECT_TRUE(plan->is_current());
  plan->run(Tensors{floats(3)});
  EXPECT_TRUE(same(left, torch::full({2}, 6.0)));
  plan->run(Tensors{floats(4)});
  EXPECT_TRUE(same(left, torch::full({2}, 8.0)));
  left = torch::Tensor();
  EXPECT_FALSE(plan->is_current());
  const auto unused = record(make);
  unused->settle_left_tensors();
  EXPECT_TRUE(same(left, torch::zeros({2})));
  EXPECT_TRUE(same(constant, torch::ones({2})));
  EXPECT_FALSE(record([](const torch::Tensor& x) { return (x * 2).relu(); })->leaves_tensors());
}

TEST_F(FunctionRecordingTest, WhatIsNotRunLeavesTensorsThatCanBeRead) {
  const torch::Tensor w = floats(3);
  const torch::Tensor waits = floats(1) + 1;
  torch::Tensor number;
  torch::Tensor copy;
  torch::Tensor product;
  torch::Tensor of_argument;
  const auto make = [&](const torch::Tensor& x) {
    number = torch::full({2}, 5.0, x.options());
    copy = w.clone();
    product = w * waits + number;
    of_argument = x + w;
    w.add_(1);
    return x;
  };
  const auto expect_settled = [&] {
    EXPECT_TRUE(same(w, torch::full({2}, 3.0)));
    EXPECT_TRUE(same(number, torch::full({2}, 5.0)));
    EXPECT_TRUE(same(copy, torch::full({2}, 3.0)));
    EXPECT_TRUE(same(product, torch::full({2}, 11.0)));
    EXPECT_TRUE(same(of_argument, torch::zeros({2})));
  };
  record(make)->settle_left_tensors();
  expect_settled();
  const auto fails = [&](const torch::Tensor& x) {
    make(x);
    throw std::out_of_range("own");
    return x;
  };
  EXPECT_THROW(record(fails), std::out_of_range);
  expect_settled();
}

TEST_F(FunctionRecordingTest, WhatOtherThreadsCopyToTheDeviceIsNotItsOwn) {
  torch::Tensor theirs;
  const auto plan = record([&](const torch::Tensor& x) {
    std::thread([&] { theirs = floats(7); }).join();
    return x + 1;
  });
  EXPECT_FALSE(plan->leaves_tensors());
  EXPECT_TRUE(same(theirs, torch::full({2}, 7.0)));
}

TEST_F(FunctionRecordingTest, IsNotCurrentWithoutItsTensors) {
  torch::Tensor w = floats(1);
  const auto plan = record([&](const torch::Tensor& x) { return x * w; });
  plan->run(Tensors{floats(1)});
  EXPECT_TRUE(plan->is_current());
  w = floats(1);
  EXPECT_FALSE(plan->is_current());
  expect_error<FailedPrecondition>([&] { plan->run(Tensors{floats(1)}); },
                                   "the function step was to run, but a tensor that it was recorded with is gone");
}

TEST_F(FunctionRecordingTest, RunsOnceWithATensorThatTheFunctionGivesUp) {
  torch::Tensor state = floats(1);
  const auto plan = record([&](const torch::Tensor& x) {
    state = state + x;
    return state * 1;
  });
  EXPECT_TRUE(same(plan->run(Tensors{floats(2)})[0], torch::full({2}, 3.0)));
  EXPECT_TRUE(same(state, torch::full({2}, 3.0)));
  EXPECT_FALSE(plan->is_current());
}

TEST_F(FunctionRecordingTest, ArgumentsAreApartFromWhatIsWritten) {
  const torch::Tensor w = floats(1);
  const auto plan = record([&](const torch::Tensor& x) { return w.add_(x) + 0; });
  expect_error<FailedPrecondition>([&] { plan->run(Tensors{w}); }, "shares its memory with another tensor");
  const auto reads = record([&](const torch::Tensor& x) { return w + x; });
  EXPECT_TRUE(same(reads->run(Tensors{w})[0], torch::full({2}, 2.0)));
}

TEST_F(FunctionRecordingTest, NothingRunsWithoutARunner) {
  const torch::Tensor w = floats(1);
  const auto plan = record([&](const torch::Tensor& x) { return w + x; });
  set_runner(nullptr);
  expect_error<FailedPrecondition>([&] { plan->run(Tensors{w}); }, "the function step was to run, but nothing runs");
}

TEST_F(FunctionRecordingTest, OneFunctionIsRecordedAtATime) {
  const FunctionRecording first(recording(), "the function step");
  EXPECT_TRUE(FunctionRecording::is_tracing());
  expect_error<FailedPrecondition>([] { const FunctionRecording second(recording(), "the function other"); },
                                   "the function other cannot be recorded while the function step is");
}

}  // namespace
}  // namespace function_recording_test
}  // namespace cohort::record
