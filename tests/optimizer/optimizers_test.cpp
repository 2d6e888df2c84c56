// The update rules against PyTorch's optimizers and the papers' formulas over 100 steps, and their options.
#include "cohort/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "cohort/error.h"
#include "tests/optimizer/rule_cases.h"
#include "tests/optimizer/rule_runs.h"

namespace cohort::optimizers_test {
namespace {

using nlohmann::json;
using testing_support::all_cases;
using testing_support::Case;
using testing_support::keras_cases;
using testing_support::kShapes;
using testing_support::make_slots;
using testing_support::numbers;
using testing_support::torch_cases;
using testing_support::update_by_segments;

constexpr int64_t kSteps = 100;

torch::Tensor gradient_at(int64_t step, std::size_t parameter, torch::ScalarType dtype) {
  torch::Tensor gradient = numbers(1000 * step + static_cast<int64_t>(parameter), kShapes[parameter], dtype);
  if (parameter + 1 == kShapes.size()) gradient.view({-1})[0] = 0.0;
  return gradient;
}

enum class Path { kSegments, kTensors };

std::vector<torch::Tensor> run(const Case& test, torch::ScalarType dtype, Path path) {
  std::vector<torch::Tensor> parameters;
  std::vector<std::vector<torch::Tensor>> slots;
  for (std::size_t i = 0; i < kShapes.size(); ++i) {
    parameters.push_back(numbers(1 + static_cast<int64_t>(i), kShapes[i], dtype));
    slots.push_back(make_slots(test.optimizer.rule(), parameters.back()));
  }
  for (int64_t step = 1; step <= kSteps; ++step) {
    const StepContext context{
        .learning_rate = test.optimizer.learning_rate()(step - 1), .step = step, .l2 = test.optimizer.gradient().l2};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const torch::Tensor gradient = gradient_at(step, i, dtype);
      const Treatment treatment{.decay = test.optimizer.decays("weight", parameters[i].dim()),
                                .adapt = test.optimizer.adapts("weight", parameters[i].dim())};
      if (path == Path::kTensors) {
        test.optimizer.rule().update(parameters[i], gradient, slots[i], treatment, context);
      } else {
        update_by_segments(test.optimizer.rule(), parameters[i], gradient, slots[i], treatment, context, {2, 19});
      }
    }
  }
  return parameters;
}

class AgainstReference : public testing::TestWithParam<torch::ScalarType> {
 protected:
  static std::string dtype_name(torch::ScalarType dtype) { return dtype == torch::kDouble ? "float64" : "float32"; }

  // All reference runs in one start of Python, which takes most of the time.
  static void SetUpTestSuite() {
    if (std::system("/usr/bin/python3 -c 'import torch' > /dev/null 2>&1") != 0) return;
    const auto folder = std::filesystem::path(testing::TempDir()) / ("cohort-optimizers-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    json cases = json::array();
    for (const Case& test : torch_cases()) {
      for (const auto dtype : {torch::kDouble, torch::kFloat}) {
        cases.push_back({{"name", test.name + " " + dtype_name(dtype)},
                         {"optimizer", test.reference},
                         {"dtype", dtype_name(dtype)},
                         {"steps", kSteps},
                         {"shapes", kShapes},
                         {"options", test.options}});
      }
    }
    std::ofstream(folder / "cases.json") << cases;
    const std::string command = "/usr/bin/python3 tests/optimizer/reference.py " + (folder / "cases.json").string() +
                                " " + (folder / "results.json").string();
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    std::ifstream(folder / "results.json") >> results_;
    std::filesystem::remove_all(folder);
  }

  void SetUp() override {
    if (results_.empty()) GTEST_SKIP() << "/usr/bin/python3 has no torch (Debian's python3-torch): no reference";
  }

  // Compares the parameters, relative to the largest element of each.
  void compare(Path path) const {
    const double tolerance = GetParam() == torch::kDouble ? 1e-12 : 1e-5;
    for (const Case& test : torch_cases()) {
      const std::vector<torch::Tensor> parameters = run(test, GetParam(), path);
      const json& wanted = results_.at(test.name + " " + dtype_name(GetParam()));
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const torch::Tensor reference = torch::tensor(wanted[i].get<std::vector<double>>(), torch::kDouble);
        const torch::Tensor got = parameters[i].to(torch::kDouble).view({-1});
        const double difference = ((got - reference).abs().max() / reference.abs().max()).item<double>();
        EXPECT_LE(difference, tolerance) << test.name << ", parameter " << i;
        EXPECT_FALSE(got.equal(numbers(1 + static_cast<int64_t>(i), kShapes[i], torch::kDouble).view({-1})))
            << test.name << ", parameter " << i << ": never updated";
      }
    }
  }

  static json results_;
};

json AgainstReference::results_;

TEST_P(AgainstReference, Kernels) {
  compare(Path::kSegments);
}

TEST_P(AgainstReference, TensorOperations) {
  compare(Path::kTensors);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, AgainstReference, testing::Values(torch::kDouble, torch::kFloat),
                         [](const auto& dtype) { return std::string(c10::toString(dtype.param)); });

TEST(KerasForms, KernelsAgreeWithTensorOperations) {
  for (const Case& test : keras_cases()) {
    for (const auto dtype : {torch::kDouble, torch::kFloat}) {
      const double tolerance = dtype == torch::kDouble ? 1e-11 : 2e-4;
      const std::vector<torch::Tensor> by_kernels = run(test, dtype, Path::kSegments);
      const std::vector<torch::Tensor> by_tensors = run(test, dtype, Path::kTensors);
      for (std::size_t i = 0; i < by_kernels.size(); ++i) {
        const torch::Tensor difference = (by_kernels[i] - by_tensors[i]).abs().max() / by_tensors[i].abs().max();
        EXPECT_LE(difference.item<double>(), tolerance) << test.name << ", parameter " << i;
        EXPECT_FALSE(by_kernels[i].equal(numbers(1 + static_cast<int64_t>(i), kShapes[i], dtype)))
            << test.name << ", parameter " << i << ": never updated";
      }
    }
  }
}

// The averages move at every call of minimize(), also at those that only add up gradients.
TEST(Averages, CountTheCallsOfAnUpdate) {
  const Optimizer optimizer = SGD({.learning_rate = 1.0, .ema = {.use_ema = true, .ema_momentum = 0.5}});
  for (const Path path : {Path::kSegments, Path::kTensors}) {
    torch::Tensor parameter = torch::full({3}, 8.0, torch::kDouble);
    std::vector<torch::Tensor> slots = make_slots(optimizer.rule(), parameter);
    for (int64_t step = 1; step <= 2; ++step) {
      const torch::Tensor gradient = torch::full({3}, 4.0, torch::kDouble);
      const StepContext context{.learning_rate = 1.0, .step = step, .calls = 3};
      path == Path::kTensors ? optimizer.rule().update(parameter, gradient, slots, {}, context)
                             : update_by_segments(optimizer.rule(), parameter, gradient, slots, {}, context, {});
    }
    EXPECT_EQ(parameter[0].item<double>(), 0.0);
    // 4 after the first update; three calls later 4, 4, and half of 4 and 0.
    EXPECT_EQ(slots.back()[0].item<double>(), 2.0);
  }
}

// As momentum * average + (1 - momentum) * parameter comes to.
TEST(Averages, OfAnInfiniteParameterAreInfinite) {
  const Optimizer optimizer = SGD({.learning_rate = 1.0, .ema = {.use_ema = true, .ema_momentum = 0.5}});
  const torch::Tensor gradient = torch::zeros({3}, torch::kDouble);
  for (const Path path : {Path::kSegments, Path::kTensors}) {
    torch::Tensor parameter = torch::full({3}, 8.0, torch::kDouble);
    std::vector<torch::Tensor> slots = make_slots(optimizer.rule(), parameter);
    for (const int64_t step : {1, 2, 3, 4}) {
      if (step == 2) parameter[1] = -std::numeric_limits<double>::infinity();
      const StepContext context{.learning_rate = 1.0, .step = step};
      path == Path::kTensors ? optimizer.rule().update(parameter, gradient, slots, {}, context)
                             : update_by_segments(optimizer.rule(), parameter, gradient, slots, {}, context, {});
    }
    EXPECT_TRUE(slots.back().equal(parameter)) << slots.back();
  }
}

// Scaled by half and clipped at 0.1, on both paths: the same as a gradient that came so.
TEST(Gradient, IsScaledThenClipped) {
  for (const Case& test : all_cases()) {
    const UpdateRule& rule = test.optimizer.rule();
    const torch::Tensor start = numbers(5, {40}, torch::kDouble);
    const torch::Tensor gradient = numbers(6, {40}, torch::kDouble);
    const StepContext plain{.learning_rate = 0.1};
    const StepContext scaled{.learning_rate = 0.1, .grad_scale = 0.5, .clipvalue = 0.1};
    const torch::Tensor wanted = start.clone();
    update_by_segments(rule, wanted, (gradient * 0.5).clamp(-0.1, 0.1), make_slots(rule, start), {}, plain, {});
    const torch::Tensor by_kernel = start.clone();
    update_by_segments(rule, by_kernel, gradient.clone(), make_slots(rule, start), {}, scaled, {});
    EXPECT_TRUE(by_kernel.equal(wanted)) << test.name;
    torch::Tensor by_tensors = start.clone();
    std::vector<torch::Tensor> slots = make_slots(rule, start);
    rule.update(by_tensors, gradient.clone(), slots, {}, scaled);
    EXPECT_TRUE(torch::allclose(by_tensors, wanted, 1e-12, 1e-15)) << test.name;
  }
}

// A NaN in a gradient must show in the parameter: clipping, maxima and trust ratios may not swallow it.
TEST(Gradient, NanIsSeen) {
  for (const Case& test : all_cases()) {
    const UpdateRule& rule = test.optimizer.rule();
    torch::Tensor gradient = numbers(6, {40}, torch::kFloat);
    gradient[21] = std::numeric_limits<double>::quiet_NaN();
    const StepContext context{.learning_rate = 0.1, .clipvalue = 0.1};
    const torch::Tensor by_kernel = numbers(5, {40}, torch::kFloat);
    update_by_segments(rule, by_kernel, gradient.clone(), make_slots(rule, by_kernel), {}, context, {});
    EXPECT_TRUE(by_kernel[21].isnan().item<bool>()) << test.name;
    const torch::Tensor by_tensors = numbers(5, {40}, torch::kFloat);
    std::vector<torch::Tensor> slots = make_slots(rule, by_tensors);
    rule.update(by_tensors, gradient.clone(), slots, {}, context);
    EXPECT_TRUE(by_tensors[21].isnan().item<bool>()) << test.name;
  }
}

// Constant gradients: the centered variance is zero, and rounds to either side of it.
TEST(Rmsprop, CenteredSurvivesConstantGradients) {
  const Optimizer optimizer = RMSprop({.learning_rate = 1e-9, .rho = 0.9, .epsilon = 1e-3, .centered = true});
  for (const Path path : {Path::kSegments, Path::kTensors}) {
    const torch::Tensor parameter = numbers(5, {1000}, torch::kFloat);
    std::vector<torch::Tensor> slots = make_slots(optimizer.rule(), parameter);
    for (int64_t step = 1; step <= 300; ++step) {
      const StepContext context{.learning_rate = 1e-9, .step = step};
      const torch::Tensor gradient = numbers(9, {1000}, torch::kFloat);
      if (path == Path::kTensors) {
        optimizer.rule().update(parameter, gradient, slots, {}, context);
      } else {
        update_by_segments(optimizer.rule(), parameter, gradient, slots, {}, context, {});
      }
    }
    EXPECT_TRUE(torch::isfinite(parameter).all().item<bool>());
  }
}

TEST(HalfPrecision, IsUpdatedInFloat) {
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    for (const Case& test : all_cases()) {
      const UpdateRule& rule = test.optimizer.rule();
      torch::Tensor half = numbers(5, {40}, dtype);
      torch::Tensor single = half.to(torch::kFloat);
      std::vector<torch::Tensor> half_slots = make_slots(rule, single);
      std::vector<torch::Tensor> single_slots = make_slots(rule, single);
      for (int64_t step = 1; step <= 3; ++step) {
        const torch::Tensor gradient = numbers(100 * step, {40}, dtype);
        const StepContext context{.learning_rate = 0.1, .step = step};
        rule.update(half, gradient.clone(), half_slots, {}, context);
        rule.update(single, gradient.to(torch::kFloat), single_slots, {}, context);
        single = single.to(dtype).to(torch::kFloat);
      }
      EXPECT_EQ(half.scalar_type(), dtype);
      EXPECT_TRUE(half.to(torch::kFloat).equal(single)) << test.name;
    }
  }
}

TEST(HalfPrecision, IsTheRoundingOfAMaster) {
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    for (const Case& test : all_cases()) {
      const UpdateRule& rule = test.optimizer.rule();
      const torch::Tensor half = numbers(5, {40}, dtype), single = half.to(torch::kFloat);
      std::vector<torch::Tensor> half_slots = make_slots(rule, single), single_slots = make_slots(rule, single);
      half_slots.push_back(torch::zeros({40}));
      for (int64_t step = 1; step <= 8; ++step) {
        const torch::Tensor gradient = numbers(100 * step, {40}, dtype);
        const StepContext context{.learning_rate = 0.1, .step = step};
        rule.update(half, gradient.clone(), half_slots, {}, context);
        rule.update(single, gradient.to(torch::kFloat), single_slots, {}, context);
        EXPECT_TRUE(half.equal(single.to(dtype))) << test.name;
      }
      EXPECT_TRUE(half_slots.back().equal(single)) << test.name;
    }
  }
}

TEST(TrustRatio, IsOneWhereANormIsZero) {
  for (const Optimizer& optimizer : {LAMB({}), LARS({})}) {
    EXPECT_TRUE(optimizer.rule().needs_norms());
    EXPECT_EQ(optimizer.rule().trust_ratio({.parameter = 0.0, .direction = 2.0}), 1.0);
    EXPECT_EQ(optimizer.rule().trust_ratio({.parameter = 2.0, .direction = 0.0}), 1.0);
    for (const Path path : {Path::kSegments, Path::kTensors}) {
      const torch::Tensor parameter = torch::zeros({20});
      const torch::Tensor gradient = numbers(3, {20}, torch::kFloat);
      std::vector<torch::Tensor> slots = make_slots(optimizer.rule(), parameter);
      const StepContext context{.learning_rate = 0.1};
      if (path == Path::kTensors) {
        optimizer.rule().update(parameter, gradient, slots, {}, context);
      } else {
        update_by_segments(optimizer.rule(), parameter, gradient, slots, {}, context, {});
      }
      EXPECT_TRUE(torch::isfinite(parameter).all().item<bool>());
      EXPECT_GT(parameter.abs().max().item<double>(), 1e-3);
    }
  }
}

TEST(Slots, HavePyTorchsNames) {
  using testing::ElementsAre;
  EXPECT_THAT(SGD().rule().slots(), ElementsAre());
  EXPECT_THAT(SGD({.momentum = 0.9}).rule().slots(), ElementsAre("momentum"));
  EXPECT_THAT(SGD({.momentum = 0.9, .formulation = Formulation::kTorch}).rule().slots(),
              ElementsAre("momentum_buffer"));
  EXPECT_THAT(Adam().rule().slots(), ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(AdamW({.amsgrad = true}).rule().slots(), ElementsAre("exp_avg", "exp_avg_sq", "max_exp_avg_sq"));
  EXPECT_THAT(RMSprop({.momentum = 0.5, .centered = true}).rule().slots(),
              ElementsAre("square_avg", "grad_avg", "momentum"));
  EXPECT_THAT(RMSprop({.momentum = 0.5, .formulation = Formulation::kTorch}).rule().slots(),
              ElementsAre("square_avg", "momentum_buffer"));
  EXPECT_THAT(Lion({.ema = {.use_ema = true}}).rule().slots(), ElementsAre("exp_avg", "average"));
  EXPECT_THAT(Adagrad().rule().slots(), ElementsAre("sum"));
  EXPECT_EQ(Adagrad({.initial_accumulator_value = 0.25}).rule().initial_slot_value(0), 0.25);
  EXPECT_EQ(Adam().name(), "Adam");
  EXPECT_EQ(AdamW().name(), "AdamW");
}

TEST(Decays, LeavesOutWhatIsExcluded) {
  const Optimizer all = AdamW();
  EXPECT_TRUE(all.decays("layer.bias", 1));
  const Optimizer some = AdamW({.exclude_from_weight_decay = {"norm", "embedding.weight"}});
  EXPECT_TRUE(some.decays("dense.weight", 2));
  EXPECT_TRUE(some.decays("dense.bias", 1));
  EXPECT_FALSE(some.decays("block.norm1.weight", 2));
  EXPECT_FALSE(some.decays("embedding.weight", 2));
  EXPECT_TRUE(some.decays("embedding.bias", 1));
  const Optimizer matrices = AdamW({.exclude_from_weight_decay = {"1d"}});
  EXPECT_TRUE(matrices.decays("conv1d.weight", 2));
  EXPECT_FALSE(matrices.decays("dense.bias", 1));
  EXPECT_FALSE(matrices.decays("temperature", 0));
  EXPECT_THROW(AdamW({.exclude_from_weight_decay = {""}}), InvalidArgument);
}

TEST(Options, WrongNumbersAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(SGD({.learning_rate = -0.1}), InvalidArgument);
  EXPECT_THROW(SGD({.learning_rate = nan}), InvalidArgument);
  EXPECT_THROW(SGD({.momentum = 1.0}), InvalidArgument);
  EXPECT_THROW(SGD({.nesterov = true}), InvalidArgument);
  EXPECT_THROW(SGD({.momentum = 0.9, .nesterov = true, .dampening = 0.1, .formulation = Formulation::kTorch}),
               InvalidArgument);
  EXPECT_THROW(SGD({.momentum = 0.9, .dampening = 0.1}), InvalidArgument);
  EXPECT_THROW(SGD({.weight_decay = -1.0}), InvalidArgument);
  EXPECT_THROW(Adam({.beta_1 = 1.0}), InvalidArgument);
  EXPECT_THROW(Adam({.beta_2 = -0.1}), InvalidArgument);
  EXPECT_THROW(Adam({.epsilon = -1e-8}), InvalidArgument);
  EXPECT_THROW(AdamW({.weight_decay = nan}), InvalidArgument);
  EXPECT_THROW(RMSprop({.rho = 1.5}), InvalidArgument);
  EXPECT_THROW(RMSprop({.momentum = -0.5}), InvalidArgument);
  EXPECT_THROW(Adagrad({.initial_accumulator_value = -1.0}), InvalidArgument);
  EXPECT_THROW(Adagrad({.lr_decay = -1.0, .formulation = Formulation::kTorch}), InvalidArgument);
  EXPECT_THROW(Adagrad({.lr_decay = 1.0}), InvalidArgument);
  EXPECT_THROW(Ftrl({.learning_rate_power = 0.5}), InvalidArgument);
  EXPECT_THROW(Adafactor({.clip_threshold = 0.0}), InvalidArgument);
  EXPECT_THROW(Nadam({.beta_1 = 1.0}), InvalidArgument);
  EXPECT_THROW(LARS({.classic_momentum = false, .formulation = Formulation::kTorch}), InvalidArgument);
  EXPECT_THROW(Lion({.ema = {.ema_overwrite_frequency = 2}}), InvalidArgument);
  EXPECT_THROW(Adadelta({.ema = {.use_ema = true, .ema_momentum = 1.0}}), InvalidArgument);
  EXPECT_THROW(LAMB({.beta_2 = 1.0}), InvalidArgument);
  EXPECT_THROW(LARS({.trust_coefficient = -1.0}), InvalidArgument);
  EXPECT_THROW(LARS({.momentum = 0.0, .nesterov = true}), InvalidArgument);
  EXPECT_THROW(Adam({.gradient = {.global_clipnorm = -1.0}}), InvalidArgument);
  EXPECT_THROW(Adam({.gradient = {.clipvalue = nan}}), InvalidArgument);
  EXPECT_THROW(Adam({.gradient = {.global_clipnorm = 1.0, .clipvalue = 1.0}}), InvalidArgument);
  EXPECT_THROW(Adam({.gradient = {.gradient_accumulation_steps = 0}}), InvalidArgument);
  EXPECT_THROW(Adam({.gradient = {.clipnorm = 1.0, .clipvalue = 1.0}}), InvalidArgument);
  EXPECT_THROW(Optimizer(nullptr, 0.1, {}), InvalidArgument);
}

TEST(Options, MessagesNameTheOptimizerAndTheField) {
  try {
    Adam({.beta_1 = 1.5});
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "[optimizer] Adam: beta_1 is 1.5, wanted 0 or more and below 1");
  }
}

TEST(Segments, OfOtherDtypesAreRefused) {
  EXPECT_THROW(SGD().rule().update(Segment{.dtype = torch::kInt, .size = 1}, {.learning_rate = 0.1}), InvalidArgument);
}

}  // namespace
}  // namespace cohort::optimizers_test
