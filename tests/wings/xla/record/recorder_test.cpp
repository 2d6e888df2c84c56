// Recording: values, views, writes in place, autograd, signatures, what is donated.
#include "wings/xla/record/recorder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/more_update_rules.h"
#include "cohort/optimizer.h"
#include "optimizer/update_rule.h"
#include "tests/support/errors.h"
#include "tests/wings/xla/record/host_runner.h"
#include "wings/xla/record/stablehlo/lower.h"

namespace cohort::record {
namespace recorder_test {
namespace {

const torch::Device kDevice(torch::kXLA, 0);

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest() {
    install_recorder({.devices = 2});
    set_runner(runner_);
    torch::manual_seed(1);
  }
  ~RecorderTest() override { set_runner(nullptr); }

  Recording& recording() const { return recording_of(kDevice); }
  std::shared_ptr<HostRunner> runner_ = std::make_shared<HostRunner>();
};

void expect_equal(const torch::Tensor& recorded, const torch::Tensor& wanted) {
  EXPECT_EQ(recorded.sizes(), wanted.sizes());
  EXPECT_EQ(recorded.strides(), wanted.strides());
  EXPECT_EQ(recorded.scalar_type(), wanted.scalar_type());
  EXPECT_TRUE(recorded.to(torch::kCPU).equal(wanted)) << recorded.to(torch::kCPU) << "\nwanted\n" << wanted;
}

TEST_F(RecorderTest, NotesAnOperationInsteadOfDoingIt) {
  const torch::Tensor host = torch::randn({4, 3});
  const torch::Tensor x = host.to(kDevice);
  const torch::Tensor y = (x * 3.5 + 1.0).relu();
  EXPECT_EQ(runner_->ran().size(), 0U);
  EXPECT_EQ(recording().pending(), 1U);
  expect_equal(y, (host * 3.5 + 1.0).relu());
  EXPECT_EQ(runner_->ran().size(), 1U);
  EXPECT_EQ(recording().pending(), 0U);
}

// The same steps on the host and on the device, with results and strides alike.
template <typename Fn>
void expect_same(const Fn& steps) {
  const torch::Tensor host = torch::arange(24, torch::kFloat).view({2, 3, 4});
  const torch::Tensor own = host.clone();
  const torch::Tensor device = host.to(kDevice);
  expect_equal(steps(device), steps(own));
  expect_equal(device, own);
}

TEST_F(RecorderTest, ViewsAliasAsLibTorchs) {
  expect_same([](torch::Tensor x) { return x.transpose(0, 1); });
  expect_same([](torch::Tensor x) { return x.permute({2, 0, 1}).select(0, 1).unsqueeze(1); });
  expect_same([](torch::Tensor x) { return x.view({6, 4}).t().slice(0, 1, 4, 2); });
  expect_same([](torch::Tensor x) { return x.expand({5, 2, 3, 4}); });
  expect_same([](torch::Tensor x) { return x.select(0, 1).diagonal(); });
  expect_same([](torch::Tensor x) { return x.unfold(2, 3, 1); });
  expect_same([](torch::Tensor x) { return x.transpose(0, 2).reshape({4, 6}); });
  expect_same([](torch::Tensor x) { return x.as_strided({2, 2}, {5, 2}, 3); });
  expect_same([](torch::Tensor x) { return torch::cat(x.split(2, 2), 0); });
  expect_same([](torch::Tensor x) { return x.unbind(1).at(2) + 1; });
  expect_same([](torch::Tensor x) { return x.transpose(0, 1).contiguous().mul_(2); });
  expect_same([](torch::Tensor x) { return (x.transpose(0, 1) * 2).transpose(0, 1).view({-1}); });
}

// Called through LibTorch's dispatcher, as kernels do, not as torch:: does it, below autograd.
TEST_F(RecorderTest, RangesHaveTheirSize) {
  const auto there = at::TensorOptions(torch::kFloat).device(kDevice);
  const auto here = at::TensorOptions(torch::kFloat);
  expect_equal(at::arange(5, there), at::arange(5, here));
  expect_equal(at::arange(2, 5, there), at::arange(2, 5, here));
  expect_equal(at::arange(2, 9, 3, there), at::arange(2, 9, 3, here));
  expect_equal(torch::arange(2, 9, 3, there), torch::arange(2, 9, 3, here));
  expect_equal(at::arange(4, at::TensorOptions(kDevice)), at::arange(4));  // of int64
  torch::Tensor out = torch::zeros({3}, there);
  at::arange_out(out, 1, 4, 1);
  expect_equal(out, at::arange(1, 4, here));
  testing::expect_error<Unimplemented>([&] { at::arange_out(out, 1, 9, 1); }, "arange into a tensor of [3]");
}

TEST_F(RecorderTest, WritesThroughViewsReachEveryAlias) {
  expect_same([](torch::Tensor x) { return x.transpose(0, 1).mul_(2); });
  expect_same([](torch::Tensor x) { return x.select(1, 2).add_(100); });
  expect_same([](torch::Tensor x) { return x.slice(2, 1, 4, 2).fill_(-1); });
  expect_same([](torch::Tensor x) { return x.view({-1}).slice(0, 3, 11).copy_(torch::arange(8).to(x.device())); });
  expect_same([](torch::Tensor x) { return x.select(0, 1).diagonal().zero_(); });
  expect_same([](torch::Tensor x) {
    const torch::Tensor first = x.select(0, 0);
    const torch::Tensor second = x.view({-1}).slice(0, 2, 6);
    first.add_(10);
    second.mul_(3);
    return first * second.sum();
  });
  expect_same([](torch::Tensor x) { return x.transpose(1, 2).reshape({-1}).add_(1); });
  expect_same([](torch::Tensor x) {
    torch::Tensor y = x.detach();
    y.sub_(1);
    return y;
  });
}

TEST_F(RecorderTest, ConvertsBetweenDevicesAndDtypes) {
  const torch::Tensor host = torch::randn({3, 2});
  expect_equal(host.to(kDevice, torch::kDouble), host.to(torch::kDouble));
  expect_equal(host.to(kDevice).to(torch::kInt), host.to(torch::kInt));
  torch::Tensor target = torch::zeros({3, 2}, torch::kDouble);
  target.copy_(host.to(kDevice));
  EXPECT_TRUE(target.equal(host.to(torch::kDouble)));
  const torch::Tensor other = host.to(kDevice).to(torch::Device(torch::kXLA, 1));
  EXPECT_EQ(other.device().index(), 1);
  expect_equal(other, host);
  EXPECT_THROW(other + host.to(kDevice), InvalidArgument);
  EXPECT_FLOAT_EQ((host.to(kDevice).sum()).item<float>(), host.sum().item<float>());
}

torch::Tensor mlp_loss(const std::vector<torch::Tensor>& w, const torch::Tensor& x) {
  const torch::Tensor hidden = torch::linear(x, w[0], w[1]).relu();
  return torch::linear(hidden, w[2], w[3]).tanh().square().mean();
}

std::vector<torch::Tensor> mlp_weights() {
  return {torch::randn({5, 3}), torch::randn({5}), torch::randn({2, 5}), torch::randn({2})};
}

TEST_F(RecorderTest, AutogradRunsAboveAndGivesTheSameGraphTwice) {
  const std::vector<torch::Tensor> host = mlp_weights();
  const torch::Tensor input = torch::randn({7, 3});
  std::vector<std::string> signatures;
  for (int round = 0; round < 2; ++round) {
    std::vector<torch::Tensor> w;
    std::vector<torch::Tensor> own;
    for (const torch::Tensor& t : host) {
      w.push_back(t.to(kDevice).requires_grad_());
      own.push_back(t.clone().requires_grad_());
    }
    const torch::Tensor loss = mlp_loss(w, input.to(kDevice));
    loss.backward();
    mlp_loss(own, input).backward();
    std::vector<torch::Tensor> outputs{loss};
    for (const torch::Tensor& t : w) outputs.push_back(t.grad());
    signatures.push_back(recording().capture(outputs).program->signature());
    for (std::size_t i = 0; i < w.size(); ++i)
      EXPECT_TRUE(w[i].grad().to(torch::kCPU).allclose(own[i].grad(), 1e-6, 1e-7));
  }
  EXPECT_EQ(signatures[0], signatures[1]);
}

TEST_F(RecorderTest, NumbersThatChangeDoNotChangeTheProgram) {
  const auto capture = [&](double rate, int64_t rows) {
    const torch::Tensor x = torch::ones({rows, 2}).to(kDevice);
    const torch::Tensor y = x.sub(x.square(), rate).addcmul_(x, x, rate / 3).pow(rate + 3);
    return recording().capture(std::vector<torch::Tensor>{y});
  };
  const Captured first = capture(0.1, 3);
  const Captured second = capture(0.07, 3);
  EXPECT_EQ(first.program, second.program);
  EXPECT_EQ(first.program->hash(), second.program->hash());
  EXPECT_FALSE(second.is_new);
  ASSERT_EQ(second.scalars.size(), 1U);
  EXPECT_TRUE(second.scalars[0].equal(torch::tensor({0.07F, static_cast<float>(0.07 / 3), 3.07F})));
  EXPECT_NE(capture(0.1, 4).program->hash(), first.program->hash());
}

// The tensor form of update rules: a float32 copy is updated, and the parameter is its rounding.
TEST_F(RecorderTest, UpdatesOfHalfPrecisionRoundMasters) {
  const torch::NoGradGuard no_grad;
  for (const Optimizer& rule : {SGD(), AdamW({.ema = {.use_ema = true}}), LAMB(), Adafactor()}) {
    const auto updated = [&](torch::Device device) {
      const torch::Tensor parameter = torch::linspace(-1, 1, 12).view({3, 4}).to(torch::kBFloat16).to(device);
      std::vector<torch::Tensor> slots;
      for (std::size_t s = 0; s <= rule.rule().slots().size(); ++s) slots.push_back(torch::zeros({3, 4}).to(device));
      for (int64_t step = 1; step <= 3; ++step) {
        const torch::Tensor gradient = torch::arange(12).view({3, 4}).sub(4.0 + static_cast<double>(step));
        rule.rule().update(parameter, gradient.to(torch::kBFloat16).to(device), slots, {},
                           {.learning_rate = 1e-3, .step = step});
      }
      return std::pair(parameter.cpu(), slots.back().cpu());
    };
    const auto [wanted, wanted_master] = updated(torch::kCPU);
    const auto [got, master] = updated(kDevice);
    EXPECT_TRUE(master.allclose(wanted_master, 1e-6, 1e-7)) << rule.name();
    EXPECT_TRUE(got.equal(master.to(torch::kBFloat16))) << rule.name();
    EXPECT_NO_THROW((void)to_stablehlo(*runner_->ran().back())) << rule.name();
  }
}

TEST_F(RecorderTest, AWeightThatIsReplacedGivesItsMemory) {
  const torch::Tensor w = torch::ones({3}).to(kDevice);
  const torch::Tensor kept = torch::ones({3}).to(kDevice);
  const torch::Tensor copy = kept.clone();
  for (int step = 0; step < 3; ++step) {
    w.sub_(kept, 0.25);
    kept.add_(1);
    recording().flush();
    const auto& aliases = runner_->ran().back()->aliases();
    // kept's first value is copy's, too, and may not be given away.
    EXPECT_EQ(std::count_if(aliases.begin(), aliases.end(), [](int a) { return a >= 0; }), step == 0 ? 1 : 2);
  }
  EXPECT_TRUE(w.to(torch::kCPU).equal(torch::full({3}, 1 - 0.25 * 6)));
  EXPECT_TRUE(copy.to(torch::kCPU).equal(torch::ones({3})));
}

TEST_F(RecorderTest, WhatCannotBeRecordedNamesOperationAndLayer) {
  const torch::Tensor w = torch::eye(3).to(kDevice);
  set_name(w, "layer3.conv1.weight");
  try {
    (void)torch::linalg_qr(w);
    FAIL() << "wanted an error";
  } catch (const Unimplemented& error) {
    EXPECT_NE(std::string(error.what()).find("linalg_qr"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("layer3.conv1"), std::string::npos) << error.what();
  }
  set_soft_placement(true);
  EXPECT_TRUE(std::get<1>(torch::linalg_qr(w)).to(torch::kCPU).abs().allclose(torch::eye(3)));
  set_soft_placement(false);
}

TEST_F(RecorderTest, AMaskAsAnIndexIsNamed) {
  const torch::Tensor x = torch::arange(4.0).to(kDevice);
  const torch::Tensor mask = x > 1.5;
  try {
    (void)x.index({mask});
    FAIL() << "wanted an error";
  } catch (const Unimplemented& error) {
    EXPECT_NE(std::string(error.what()).find("index.Tensor has no lowering to StableHLO for masks"), std::string::npos)
        << error.what();
  }
  set_soft_placement(true);
  EXPECT_TRUE(x.index({mask}).to(torch::kCPU).equal(torch::tensor({2.0F, 3.0F})));
  set_soft_placement(false);
}

TEST_F(RecorderTest, ValuesCannotBeReadWhileAFunctionIsRecorded) {
  const torch::Tensor x = torch::ones({2}).to(kDevice) + 1;
  {
    const Recording::Capturing capturing(recording(), "the function train_step");
    EXPECT_THROW((void)x.sum().item<float>(), FailedPrecondition);
  }
  EXPECT_FLOAT_EQ(x.sum().item<float>(), 4.0F);
}

TEST_F(RecorderTest, DevicesAreChosenAtTheFirstCall) {
  EXPECT_NO_THROW(install_recorder({.devices = 1}));
  EXPECT_THROW(install_recorder({.devices = 64}), FailedPrecondition);
  EXPECT_THROW((void)recording_of(torch::Device(torch::kXLA, 7)), InvalidArgument);
}

// LibTorch 1.13 takes no devices after its first backward, 2.6 does: every call says the same.
TEST(RecorderDeathTest, IsRefusedAfterABackwardAtEveryCallOrAtNone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr int kRefused = 3;
  constexpr int kTaken = 4;
  const auto late = [] {
    torch::ones({}).requires_grad_().mul(2).backward();
    int refused = 0;
    for (int call = 0; call < 2; ++call) {
      try {
        install_recorder({.devices = 2});
      } catch (const FailedPrecondition& error) {
        if (std::string(error.what()).find("after the first backward") != std::string::npos) ++refused;
      }
    }
    std::_Exit(refused == 2 ? kRefused : refused == 0 ? kTaken : 0);
  };
  const auto is_consistent = [](int status) {
    if (!WIFEXITED(status)) return false;
    return WEXITSTATUS(status) == kRefused || WEXITSTATUS(status) == kTaken;
  };
  EXPECT_EXIT(late(), is_consistent, "");
}

torch::Tensor state_of(int device) {
  return recording_of(torch::Device(torch::kXLA, static_cast<c10::DeviceIndex>(device))).random_state().cpu();
}

TEST_F(RecorderTest, LibTorchsSeedIsTheSeedOfTheDevices) {
  torch::manual_seed(7);
  const torch::Tensor host = torch::rand({8});
  EXPECT_TRUE(state_of(0).equal(torch::tensor({7L, 0L})));
  EXPECT_TRUE(state_of(1).equal(torch::tensor({8L, 0L})));  // each device has a stream of its own
  recording().random_state().add_(1);
  torch::manual_seed(7);
  EXPECT_TRUE(torch::rand({8}).equal(host));
  EXPECT_TRUE(state_of(0).equal(torch::tensor({7L, 0L})));
  // The host's generator is still what LibTorch and the checkpoints know.
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const torch::Tensor state = generator.get_state();
  const torch::Tensor next = torch::rand({8});
  generator.set_state(state);
  EXPECT_TRUE(torch::rand({8}).equal(next));
  generator = generator.clone();
  generator.set_state(state);
  EXPECT_TRUE(torch::rand({8}, generator).equal(next));
}

TEST_F(RecorderTest, ModulesMoveInPlace) {
  torch::nn::Linear layer(3, 2);
  const torch::Tensor weight = layer->weight;
  const torch::Tensor host = weight.detach().clone();
  for (auto& parameter : layer->parameters()) move_in_place(parameter, kDevice);
  EXPECT_TRUE(layer->weight.device().type() == torch::kXLA);
  EXPECT_TRUE(weight.requires_grad());
  layer(torch::ones({1, 3}).to(kDevice)).sum().backward();
  EXPECT_TRUE(weight.grad().to(torch::kCPU).equal(torch::ones({2, 3})));
  EXPECT_TRUE(weight.detach().to(torch::kCPU).equal(host));
}

}  // namespace
}  // namespace recorder_test
}  // namespace cohort::record
