// Shapes and dtypes of what is recorded, forward and backward, against LibTorch's on the host. What runs, where a
// gradient asks for a value (that of max(), and of prod()), runs on the host, too.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "tests/wings/xla/record/cases.h"
#include "tests/wings/xla/record/host_runner.h"
#include "wings/xla/record/recorder.h"

namespace cohort::record {
namespace shapes_test {
namespace {

const torch::Device kDevice(torch::kXLA, 0);

// The results of a case and the gradients of its inputs.
Tensors outcome_of(const Case& c, torch::Device device) {
  Tensors inputs;
  for (const torch::Tensor& input : c.inputs) {
    torch::Tensor own = input.detach().clone().to(device);
    inputs.push_back(c.differentiable && input.is_floating_point() ? own.requires_grad_() : own);
  }
  Tensors all = c.run(inputs);
  torch::Tensor total;
  for (const torch::Tensor& result : all) {
    if (result.requires_grad()) total = total.defined() ? total + result.sum() : result.sum();
  }
  if (total.defined()) total.backward();
  for (const torch::Tensor& input : inputs) {
    if (input.grad().defined()) all.push_back(input.grad());
  }
  return all;
}

TEST(Shapes, AreThoseOfLibTorch) {
  install_recorder({.devices = 2});
  set_runner(std::make_shared<HostRunner>());
  for (const Case& c : all_cases()) {
    const Tensors wanted = outcome_of(c, torch::kCPU);
    Tensors got;
    try {
      got = outcome_of(c, kDevice);
    } catch (const std::exception& error) {
      ADD_FAILURE() << c.name << ": " << error.what();
      continue;
    }
    ASSERT_EQ(got.size(), wanted.size()) << c.name;
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].sizes(), wanted[i].sizes()) << c.name << " " << i;
      EXPECT_EQ(got[i].scalar_type(), wanted[i].scalar_type()) << c.name << " " << i;
      EXPECT_EQ(got[i].device(), kDevice) << c.name << " " << i;
    }
  }
  set_runner(nullptr);
}

TEST(Shapes, DtypesArePromotedAsByLibTorch) {
  install_recorder({.devices = 2});
  const std::vector<torch::ScalarType> dtypes{torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf,
                                              torch::kLong,  torch::kInt,    torch::kByte,     torch::kBool};
  for (const torch::ScalarType a : dtypes) {
    for (const torch::ScalarType b : dtypes) {
      const torch::Tensor x = torch::ones({2, 1}, a);
      const torch::Tensor y = torch::ones({3}, b);
      const torch::Tensor zero_dim = torch::ones({}, b);
      const auto result = [&](torch::Device device) {
        return Tensors{x.to(device) + y.to(device),        x.to(device) / y.to(device),
                       x.to(device) * zero_dim.to(device), x.to(device) * zero_dim,
                       x.to(device) < y.to(device),        torch::cat({x.to(device).view({-1}), y.to(device)})};
      };
      const Tensors got = result(kDevice);
      const Tensors wanted = result(torch::kCPU);
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(got[i].scalar_type(), wanted[i].scalar_type()) << a << b << i;
    }
    const torch::Tensor x = torch::ones({2}, a);
    EXPECT_EQ((x.to(kDevice) * 0.5).scalar_type(), (x * 0.5).scalar_type()) << a;
    EXPECT_EQ((x.to(kDevice) * 3).scalar_type(), (x * 3).scalar_type()) << a;
    EXPECT_EQ(x.to(kDevice).sum().scalar_type(), x.sum().scalar_type()) << a;
  }
}

}  // namespace
}  // namespace shapes_test
}  // namespace cohort::record
