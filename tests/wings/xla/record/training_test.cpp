// Training on XLA's plugin for CPUs: networks step by step beside LibTorch's own, every update rule, random numbers,
// replicas.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "cohort/more_update_rules.h"
#include "cohort/optimizer.h"
#include "optimizer/update_rule.h"
#include "tests/support/xla.h"
#include "wings/xla/device/runner.h"
#include "wings/xla/record/generator.h"
#include "wings/xla/record/recorder.h"
#include "wings/xla/record/stablehlo/lower.h"

namespace cohort::record {
namespace training_test {
namespace {

using Tensors = std::vector<torch::Tensor>;
const torch::Device kDevice(torch::kXLA, 0);

// Passes everything on and counts the programs.
class Counting final : public GraphRunner {
 public:
  explicit Counting(std::shared_ptr<GraphRunner> inner) : inner_(std::move(inner)) {}
  int devices() const override { return inner_->devices(); }
  std::shared_ptr<DeviceData> place(const torch::Tensor& host, int device) override {
    return inner_->place(host, device);
  }
  torch::Tensor fetch(const DeviceData& data, const TensorType& type) override { return inner_->fetch(data, type); }
  std::vector<std::shared_ptr<DeviceData>> run(const std::shared_ptr<const Program>& program,
                                               std::span<const std::shared_ptr<DeviceData>> inputs,
                                               int device) override {
    programs.insert(program->hash());
    return inner_->run(program, inputs, device);
  }
  std::vector<std::vector<std::shared_ptr<DeviceData>>> run_replicas(
      const std::shared_ptr<const Program>& program, std::span<const std::vector<std::shared_ptr<DeviceData>>> inputs,
      std::span<const int> devices) override {
    return inner_->run_replicas(program, inputs, devices);
  }

  std::set<std::string> programs;

 private:
  std::shared_ptr<GraphRunner> inner_;
};

class TrainingTest : public testing::XlaCpuTest {
 protected:
  void SetUp() override {
    XlaCpuTest::SetUp();
    if (!plugin_) return;
    install_recorder({.devices = 2});
    counting_ = std::make_shared<Counting>(make_xla_runner(client(2)));
    set_runner(counting_);
    torch::manual_seed(1);
  }
  void TearDown() override { set_runner(nullptr); }

  std::shared_ptr<Counting> counting_;
};

using Loss = std::function<torch::Tensor(torch::nn::Sequential&, const torch::Tensor&, const torch::Tensor&)>;

torch::Tensor classify(torch::nn::Sequential& net, const torch::Tensor& x, const torch::Tensor& y) {
  return torch::cross_entropy_loss(net->forward(x), y);
}

// One step of the optimizer's rule for each parameter.
void update(torch::nn::Sequential& net, const Optimizer& optimizer, std::vector<Tensors>& slots, int64_t step) {
  const torch::NoGradGuard no_grad;
  std::size_t i = 0;
  for (torch::Tensor& p : net->parameters()) {
    if (slots.size() <= i) {
      slots.emplace_back();
      for (std::size_t s = 0; s < optimizer.rule().slots().size(); ++s) {
        slots.back().push_back(torch::full_like(p, optimizer.rule().initial_slot_value(s)));
      }
    }
    optimizer.rule().update(p, p.grad(), slots[i++], {},
                            {.learning_rate = 1e-2 / static_cast<double>(step), .step = step});
    p.mutable_grad() = torch::Tensor();
  }
}

void move_module(torch::nn::Module& module) {
  for (torch::Tensor& t : module.parameters()) move_in_place(t, kDevice);
  for (torch::Tensor& t : module.buffers()) move_in_place(t, kDevice);
}

double distance(const torch::nn::Module& a, const torch::nn::Module& b) {
  double worst = 0.0;
  const auto compare = [&](const Tensors& mine, const Tensors& theirs) {
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const torch::Tensor off =
          mine[i].detach().to(torch::kCPU).to(torch::kDouble) - theirs[i].detach().to(torch::kDouble);
      worst = std::max(worst, off.abs().max().item<double>());
    }
  };
  compare(a.parameters(), b.parameters());
  compare(a.buffers(), b.buffers());
  return worst;
}

// Trains two copies of a network, one on the device and one on the host, and returns how far they are from each other.
double train_both(const std::function<torch::nn::Sequential()>& make, c10::IntArrayRef input,
                  const Optimizer& optimizer, int64_t steps) {
  torch::manual_seed(3);
  torch::nn::Sequential host = make();
  torch::manual_seed(3);
  torch::nn::Sequential device = make();
  host->to(torch::kDouble);
  device->to(torch::kDouble);
  move_module(*device);
  std::vector<Tensors> host_slots;
  std::vector<Tensors> device_slots;
  for (int64_t step = 1; step <= steps; ++step) {
    const torch::Tensor x = torch::randn(input, torch::kDouble);
    const torch::Tensor y = torch::randint(10, {input[0]}, torch::kLong);
    classify(host, x, y).backward();
    update(host, optimizer, host_slots, step);
    classify(device, x.to(kDevice), y.to(kDevice)).backward();
    update(device, optimizer, device_slots, step);
    recording_of(kDevice).flush();
  }
  return distance(*device, *host);
}

torch::nn::Sequential mlp() {
  return torch::nn::Sequential(torch::nn::Linear(20, 32), torch::nn::ReLU(), torch::nn::Linear(32, 16),
                               torch::nn::GELU(), torch::nn::Linear(16, 10));
}

torch::nn::Sequential cnn() {
  using torch::nn::Conv2dOptions;
  return torch::nn::Sequential(
      torch::nn::Conv2d(Conv2dOptions(3, 8, 3).padding(1).bias(false)), torch::nn::BatchNorm2d(8), torch::nn::ReLU(),
      torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)),
      torch::nn::Conv2d(Conv2dOptions(8, 12, 3).stride(2)), torch::nn::BatchNorm2d(12), torch::nn::SiLU(),
      torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten(), torch::nn::Linear(12, 10));
}

TEST_F(TrainingTest, AnMlpIsTheSameAfterTwentyStepsOfAdam) {
  EXPECT_LE(train_both(mlp, {16, 20}, Adam(), 20), 1e-9);
  EXPECT_EQ(counting_->programs.size(), 2U);  // the first step has its slots made, the others are one program
}

TEST_F(TrainingTest, ACnnWithBatchNormIsTheSameAfterTwentyStepsOfAdam) {
  EXPECT_LE(train_both(cnn, {8, 3, 12, 12}, Adam(), 20), 1e-9);
}

TEST_F(TrainingTest, EveryUpdateRuleIsRecordedOnce) {
  const std::vector<Optimizer> optimizers{SGD({.momentum = 0.9, .nesterov = true}),
                                          Adam({.amsgrad = true}),
                                          AdamW(),
                                          RMSprop({.momentum = 0.5, .centered = true}),
                                          Adagrad(),
                                          Adadelta(),
                                          Adamax(),
                                          Nadam(),
                                          Ftrl({.l1_regularization_strength = 0.01}),
                                          Lion(),
                                          Adafactor(),
                                          LAMB(),
                                          LARS()};
  for (const Optimizer& optimizer : optimizers) {
    const std::string& name = optimizer.rule().name();
    counting_->programs.clear();
    try {
      EXPECT_LE(train_both(mlp, {16, 20}, optimizer, 5), 1e-9) << name;
    } catch (const std::exception& error) {
      ADD_FAILURE() << name << ": " << error.what();
    }
    // Hyperparameters change in every step here; the program does not.
    EXPECT_LE(counting_->programs.size(), 3U) << name;
  }
}

TEST_F(TrainingTest, RandomNumbersRepeatAndAreAsTheyShouldBe) {
  Recording& recording = recording_of(kDevice);
  const auto options = torch::TensorOptions().device(kDevice);
  Tensors rounds;
  for (int round = 0; round < 2; ++round) {
    recording.manual_seed(7);
    const torch::Tensor uniform = torch::rand({20000}, options);
    const torch::Tensor normal = torch::randn({20000}, options.dtype(torch::kDouble));
    const torch::Tensor kept = torch::dropout(torch::ones({20000}, options), 0.3, true);
    const torch::Tensor whole = torch::randint(3, 9, {20000}, options.dtype(torch::kLong));
    for (const torch::Tensor& t : {uniform, normal, kept, whole})
      rounds.push_back(t.to(torch::kCPU).to(torch::kDouble));
    rounds.push_back(torch::rand({20000}, options).to(torch::kCPU));
  }
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(rounds[i].equal(rounds[i + 5])) << i;
  EXPECT_FALSE(rounds[0].equal(rounds[4].to(torch::kDouble)));
  EXPECT_NEAR(rounds[0].mean().item<double>(), 0.5, 0.01);
  EXPECT_GE(rounds[0].min().item<double>(), 0.0);
  EXPECT_LT(rounds[0].max().item<double>(), 1.0);
  EXPECT_NEAR(rounds[1].mean().item<double>(), 0.0, 0.03);
  EXPECT_NEAR(rounds[1].std().item<double>(), 1.0, 0.03);
  EXPECT_NEAR((rounds[2] > 0).to(torch::kDouble).mean().item<double>(), 0.7, 0.015);
  EXPECT_NEAR(rounds[2].max().item<double>(), 1 / 0.7, 1e-6);
  EXPECT_EQ(rounds[3].min().item<double>(), 3.0);
  EXPECT_EQ(rounds[3].max().item<double>(), 8.0);
  const at::Generator own = make_generator(kDevice, 7);
  recording.manual_seed(7);
  EXPECT_TRUE(
      torch::empty({5}, options).uniform_(0, 1, own).to(torch::kCPU).equal(torch::rand({5}, options).to(torch::kCPU)));
}

TEST_F(TrainingTest, ReplicasSumGradientsAndDrawTheirOwnNumbers) {
  const torch::Tensor x = make_parameter({torch::kFloat, {3}}, kDevice, "x");
  Recording& recording = recording_of(kDevice);
  recording.manual_seed(3);
  const torch::Tensor noise = torch::rand({3}, torch::TensorOptions().device(kDevice));
  const Captured captured = recording.capture(Tensors{all_reduce(x), noise, recording.random_state()});
  const XlaClientPtr two = client(2);
  const auto program = two->compile(to_stablehlo(*captured.program, {.num_replicas = 2}), {.num_replicas = 2});
  XlaLists arguments(2);
  for (int r = 0; r < 2; ++r) {
    for (const Value& leaf : captured.data) {
      const bool is_x = leaf == value_of(x);
      const torch::Tensor host = is_x ? torch::full({3}, r + 1.0F) : torch::tensor({int64_t{11}, int64_t{0}});
      arguments[static_cast<std::size_t>(r)].push_back(two->to_device(host, r));
    }
  }
  const XlaLaunch launch = program->launch(arguments);
  for (int r = 0; r < 2; ++r)
    EXPECT_TRUE(launch.outputs[static_cast<std::size_t>(r)][0].to_host().equal(torch::full({3}, 3.0F)));
  EXPECT_FALSE(launch.outputs[0][1].to_host().equal(launch.outputs[1][1].to_host()));
  EXPECT_TRUE(launch.outputs[0][2].to_host().equal(launch.outputs[1][2].to_host()));
  recording.manual_seed(11);
  EXPECT_TRUE(
      torch::rand({3}, torch::TensorOptions().device(kDevice)).to(torch::kCPU).equal(launch.outputs[0][1].to_host()));
}

}  // namespace
}  // namespace training_test
}  // namespace cohort::record
