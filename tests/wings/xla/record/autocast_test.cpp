// Autocast of recorded tensors: LibTorch's rules for CUDA, with every version of it.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/libtorch_compat.h"
#include "tests/wings/xla/record/host_runner.h"
#include "wings/xla/record/recorder.h"

namespace cohort::record {
namespace autocast_test {
namespace {

const torch::Device kDevice(torch::kXLA, 0);

class AutocastTest : public ::testing::Test {
 protected:
  AutocastTest() {
    install_recorder({.devices = 2});
    set_runner(std::make_shared<HostRunner>());
    torch::manual_seed(1);
  }
  ~AutocastTest() override { set_runner(nullptr); }
};

TEST_F(AutocastTest, ProductsAreCastAndSumsAreNot) {
  const torch::Tensor a = torch::randn({4, 3}), b = torch::randn({3, 5});
  const torch::Tensor x = a.to(kDevice), y = b.to(kDevice);
  torch::Tensor product, wanted;
  {
    const compat::Autocast autocast(torch::kXLA, torch::kBFloat16);
    product = x.mm(y);
    EXPECT_EQ(product.scalar_type(), torch::kBFloat16);
    EXPECT_EQ(torch::linear(x, y.t()).scalar_type(), torch::kBFloat16);
    EXPECT_EQ(product.relu().scalar_type(), torch::kBFloat16);
    EXPECT_EQ(product.softmax(1).scalar_type(), torch::kFloat);
    EXPECT_EQ(product.sum().scalar_type(), torch::kFloat);
    EXPECT_EQ(torch::cat({product, torch::zeros({1, 5}).to(kDevice)}).scalar_type(), torch::kFloat);
    EXPECT_EQ(x.to(torch::kDouble).mm(y.to(torch::kDouble)).scalar_type(), torch::kDouble);
    EXPECT_EQ(a.mm(b).scalar_type(), torch::kFloat) << "tensors of the host are none of these devices'";
  }
  EXPECT_EQ(x.mm(y).scalar_type(), torch::kFloat);
  {
    const compat::Autocast autocast(torch::kCPU, torch::kBFloat16);
    wanted = a.mm(b);
    EXPECT_EQ(x.mm(y).scalar_type(), torch::kFloat);
  }
  EXPECT_TRUE(product.cpu().equal(wanted)) << product.cpu() << wanted;
}

TEST_F(AutocastTest, AScopeWithinAnotherEndsWhereItEnds) {
  const torch::Tensor x = torch::ones({2, 2}).to(kDevice);
  const compat::Autocast outer(torch::kXLA, torch::kHalf);
  {
    const compat::Autocast inner(torch::kXLA, torch::kBFloat16);
    EXPECT_EQ(x.mm(x).scalar_type(), torch::kBFloat16);
  }
  EXPECT_EQ(x.mm(x).scalar_type(), torch::kHalf);
}

TEST_F(AutocastTest, GradientsComeBackInTheDtypeOfTheWeights) {
  torch::Tensor weights = torch::randn({3, 5}).to(kDevice).requires_grad_();
  torch::Tensor loss;
  {
    const compat::Autocast autocast(torch::kXLA, torch::kBFloat16);
    loss = torch::ones({4, 3}).to(kDevice).mm(weights).sum();
  }
  loss.backward();
  ASSERT_TRUE(weights.grad().defined());
  EXPECT_EQ(weights.grad().scalar_type(), torch::kFloat);
  EXPECT_TRUE(weights.grad().cpu().equal(torch::full({3, 5}, 4.0))) << weights.grad().cpu();
}

}  // namespace
}  // namespace autocast_test
}  // namespace cohort::record
