// The text of a small MLP's step, and what a text says of names, aliases, replicas and precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <sstream>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "wings/xla/record/recorder.h"
#include "wings/xla/record/stablehlo/lower.h"
#include "wings/xla/record/stablehlo/text.h"

namespace cohort::record {
namespace stablehlo_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const torch::Device kDevice(torch::kXLA, 0);

Captured mlp_step(double rate) {
  install_recorder({.devices = 2});
  std::vector<torch::Tensor> w{make_parameter({torch::kFloat, {4, 3}}, kDevice, "fc1.weight"),
                               make_parameter({torch::kFloat, {4}}, kDevice, "fc1.bias"),
                               make_parameter({torch::kFloat, {2, 4}}, kDevice, "fc2.weight")};
  std::vector<Value> before;
  for (torch::Tensor& t : w) {
    before.push_back(value_of(t));
    t.requires_grad_();
  }
  const torch::Tensor x = make_parameter({torch::kFloat, {5, 3}}, kDevice, "x");
  const torch::Tensor y = make_parameter({torch::kLong, {5}}, kDevice, "y");
  const torch::Tensor hidden = torch::linear(x, w[0], w[1]).relu();
  const torch::Tensor loss = torch::cross_entropy_loss(torch::linear(hidden, w[2]), y);
  loss.backward();
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> outputs;
  for (torch::Tensor& t : w) {
    t.sub_(all_reduce(t.grad()), rate);
    outputs.push_back(t);
  }
  outputs.push_back(all_reduce(loss.detach()));
  before.push_back({});
  return recording_of(kDevice).capture(outputs, before);
}

TEST(StableHlo, AnMlpsStepIsThisText) {
  const std::string path = "tests/wings/xla/record/mlp.mlir";
  const std::string text = to_stablehlo(*mlp_step(0.1).program, {.num_replicas = 2});
  std::ifstream file(path);
  std::stringstream wanted;
  wanted << file.rdbuf();
  EXPECT_EQ(text, wanted.str()) << "if the new text is right, write it to " << path << ":\n" << text;
}

TEST(StableHlo, ARateIsAnInput) {
  EXPECT_EQ(mlp_step(0.1).program, mlp_step(0.05).program);
}

TEST(StableHlo, OneReplicaHasNoAllReduce) {
  const std::string text = to_stablehlo(*mlp_step(0.1).program);
  EXPECT_THAT(text, Not(HasSubstr("all_reduce\"")));
  EXPECT_THAT(text, HasSubstr("mhlo.num_replicas = 1"));
}

TEST(StableHlo, ThePrecisionIsThatOfAllProducts) {
  install_recorder({.devices = 2});
  const torch::Tensor x = make_parameter({torch::kFloat, {2, 3, 5, 5}}, kDevice);
  const torch::Tensor kernel = make_parameter({torch::kFloat, {4, 3, 3, 3}}, kDevice);
  const torch::Tensor w = make_parameter({torch::kFloat, {3, 7}}, kDevice);
  const torch::Tensor y = torch::conv2d(x, kernel).view({24, 3}).mm(w);
  const Captured captured = recording_of(kDevice).capture(std::vector<torch::Tensor>{y});
  EXPECT_THAT(to_stablehlo(*captured.program), AllOf(HasSubstr("precision = [DEFAULT, DEFAULT]"),
                                                     HasSubstr("<precision DEFAULT>, #stablehlo<precision DEFAULT>")));
  const std::string text = to_stablehlo(*captured.program, {.precision = find_matmul_precision("highest", "a test")});
  EXPECT_THAT(text, AllOf(HasSubstr("precision = [HIGHEST, HIGHEST]"),
                          HasSubstr("<precision HIGHEST>, #stablehlo<precision HIGHEST>"), Not(HasSubstr("DEFAULT"))));
  EXPECT_THAT(testing::error_of<InvalidArgument>([] { find_matmul_precision("low", "a test"); }),
              HasSubstr("a test is low, wanted default, high or highest"));
}

TEST(StableHlo, FewRowsByALargeTransposedMatrixAreTurnedForCpus) {
  install_recorder({.devices = 2});
  const torch::Tensor large = make_parameter({torch::kFloat, {16, 3}}, kDevice);
  const torch::Tensor small = make_parameter({torch::kFloat, {15, 3}}, kDevice);
  const auto text_of = [](const torch::Tensor& y, const StableHloOptions& options) {
    return to_stablehlo(*recording_of(kDevice).capture(std::vector<torch::Tensor>{y}).program, options);
  };
  const torch::Tensor x = make_parameter({torch::kFloat, {8, 3}}, kDevice);
  const std::string turned = text_of(x.mm(large.t()), {.platform = "cpu"});
  EXPECT_THAT(turned, HasSubstr("contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x3xf32>, "
                                "tensor<3x8xf32>) -> tensor<16x8xf32>"));
  EXPECT_THAT(turned, HasSubstr("stablehlo.optimization_barrier"));
  for (const std::string& plain :
       {text_of(x.mm(large.t()), {}), text_of(x.mm(large.t()), {.platform = "tpu"}),
        text_of(x.mm(large.t()), {.num_cores = 2, .platform = "cpu"}), text_of(x.mm(small.t()), {.platform = "cpu"})}) {
    EXPECT_THAT(plain, Not(HasSubstr("optimization_barrier")));
    EXPECT_THAT(plain, HasSubstr("(tensor<8x3xf32>, tensor<3x1"));
  }
}

TEST(StableHlo, NumbersAreTheirBits) {
  using stablehlo::literal;
  EXPECT_EQ(literal(1.0, "f32"), "0x3F800000");
  EXPECT_EQ(literal(-0.1, "f64"), "0xBFB999999999999A");
  EXPECT_EQ(literal(1.0, "bf16"), "0x3F80");
  EXPECT_EQ(literal(1.0, "f16"), "0x3C00");
  EXPECT_EQ(literal(INFINITY, "f32"), "0x7F800000");
  EXPECT_EQ(literal(-3.0, "i64"), "-3");
  EXPECT_EQ(literal(2.0, "i1"), "true");
}

TEST(StableHlo, WhatHasNoLoweringNamesOperationAndLayer) {
  install_recorder({.devices = 2});
  const torch::Tensor w = make_parameter({torch::kFloat, {4, 3}}, kDevice, "layer3.embed.weight");
  const torch::Tensor expanded = torch::zeros({1, 3}, kDevice);
  torch::Tensor view = expanded.expand({4, 3});
  const Value written = value_of(w * 2.0);
  assign(view, written);
  const Captured captured = recording_of(kDevice).capture(std::vector<torch::Tensor>{expanded});
  EXPECT_THAT(testing::error_of<Unimplemented>([&] { (void)to_stablehlo(*captured.program); }),
              ::testing::AllOf(HasSubstr("as_strided_scatter"), HasSubstr("layer3.embed"), HasSubstr("expanded")));
}

}  // namespace
}  // namespace stablehlo_test
}  // namespace cohort::record
