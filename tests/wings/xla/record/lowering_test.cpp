// Every operation that can be recorded, forward and backward: recorded, lowered to StableHLO, compiled and run by XLA's
// plugin for CPUs, and compared with LibTorch on the host.
#include "wings/xla/record/stablehlo/lower.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "tests/support/xla.h"
#include "tests/wings/xla/record/cases.h"
#include "wings/xla/device/runner.h"
#include "wings/xla/record/recorder.h"

namespace cohort::record {
namespace lowering_test {
namespace {

const torch::Device kDevice(torch::kXLA, 0);

class LoweringTest : public testing::XlaCpuTest {
 protected:
  void SetUp() override {
    XlaCpuTest::SetUp();
    if (!plugin_) return;
    install_recorder({.devices = 2});
    set_runner(make_xla_runner(client(2)));
    torch::manual_seed(1);
  }
  void TearDown() override {
    if (plugin_) recording_of(kDevice).flush();
    set_runner(nullptr);
  }
};

struct Outcome {
  Tensors results;
  Tensors gradients;
};

// The results of a case, and the gradients of its inputs with fixed numbers as the gradients of the results.
Outcome outcome_of(const Case& c, torch::ScalarType dtype, torch::Device device) {
  Tensors inputs;
  for (const torch::Tensor& input : c.inputs) {
    torch::Tensor own = input.is_floating_point() ? input.detach().clone().to(dtype) : input.clone();
    own = own.to(device);
    if (c.differentiable && input.is_floating_point()) own.requires_grad_();
    inputs.push_back(own);
  }
  Outcome outcome{c.run(inputs), {}};
  torch::Tensor total;
  for (const torch::Tensor& result : outcome.results) {
    if (!c.differentiable || !result.requires_grad()) continue;
    const torch::Tensor slope = torch::arange(result.numel(), torch::kDouble).mul(0.7).sin().view(result.sizes());
    const torch::Tensor sum = (result * slope.to(result.scalar_type()).to(device)).sum();
    total = total.defined() ? total + sum : sum;
  }
  if (total.defined()) total.backward();
  for (const torch::Tensor& input : inputs) {
    if (input.grad().defined()) outcome.gradients.push_back(input.grad());
  }
  return outcome;
}

void expect_close(const std::string& what, const Tensors& got, const Tensors& wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].sizes(), wanted[i].sizes()) << what << " " << i;
    EXPECT_EQ(got[i].scalar_type(), wanted[i].scalar_type()) << what << " " << i;
    const torch::Tensor g = got[i].detach().to(torch::kCPU).to(torch::kDouble);
    const torch::Tensor w = wanted[i].detach().to(torch::kDouble);
    const torch::Tensor off = (g - w).abs() / (w.abs() + 1.0);
    const double worst = off.numel() == 0 ? 0.0 : off.max().item<double>();
    EXPECT_LE(worst, tolerance) << what << " " << i << "\n" << g << "\nwanted\n" << w;
  }
}

class Families : public LoweringTest,
                 public ::testing::WithParamInterface<std::pair<const char*, std::vector<Case> (*)()>> {};

TEST_P(Families, AreAsLibTorchComputesThem) {
  for (const Case& c : GetParam().second()) {
    for (const torch::ScalarType dtype : {torch::kFloat, torch::kDouble}) {
      const std::string what = c.name + " in " + toString(dtype);
      try {
        const Outcome wanted = outcome_of(c, dtype, torch::kCPU);
        const Outcome got = outcome_of(c, dtype, kDevice);
        const double tolerance = dtype == torch::kFloat ? 1e-5 : 1e-9;
        expect_close(what, got.results, wanted.results, tolerance);
        expect_close("the gradients of " + what, got.gradients, wanted.gradients, tolerance);
      } catch (const Error& error) {
        ADD_FAILURE() << what << ": " << error.what();
      } catch (const c10::Error& error) {
        ADD_FAILURE() << what << ": " << error.what_without_backtrace();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Families,
    ::testing::Values(std::pair("unary", &unary_cases), std::pair("arithmetic", &arithmetic_cases),
                      std::pair("comparisons", &comparison_cases), std::pair("order", &order_cases),
                      std::pair("writing", &writing_cases), std::pair("activations", &activation_cases),
                      std::pair("reductions", &reduction_cases), std::pair("shapes", &shape_cases),
                      std::pair("indexing", &indexing_cases), std::pair("linear", &linear_cases),
                      std::pair("convolution", &convolution_cases), std::pair("pooling", &pooling_cases),
                      std::pair("normalization", &normalization_cases), std::pair("losses", &loss_cases)),
    [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace lowering_test
}  // namespace cohort::record
