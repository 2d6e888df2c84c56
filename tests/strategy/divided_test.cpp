#include "strategy/divided.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace cohort::divided_test {
namespace {

// The first half of a row of numbers, whose other half is the same.
class FirstHalf final : public DividedTensor {
 public:
  explicit FirstHalf(torch::Tensor half)
      : DividedTensor(c10::DispatchKeySet(kDividedKey), half.dtype(), half.device()), half_(std::move(half)) {
    set_sizes_contiguous({2 * half_.size(0)});
  }

  const torch::Tensor& part(const torch::Tensor& /*self*/) const override { return half_; }
  torch::Tensor whole(const torch::Tensor& /*self*/) const override { return torch::cat({half_, half_}); }
  std::function<torch::Tensor(const torch::Tensor& part)> maker() const override {
    return [](const torch::Tensor& part) { return torch::Tensor(c10::make_intrusive<FirstHalf>(part)); };
  }
  std::vector<int64_t> cut_dims() const override { return {0}; }
  Communicator& line() const override { throw std::logic_error("nobody asks"); }
  torch::Tensor shared(const torch::Tensor& plain) const override { return plain; }
  torch::Tensor entered(const torch::Tensor& self) const override { return whole(self); }
  torch::Tensor sum(const torch::Tensor& term) const override { return term; }
  torch::Tensor attend(const AttentionArgs& args) const override { return args.value; }

 private:
  torch::Tensor half_;
};

TEST(Divided, WholesAreAsTheyAre) {
  const torch::Tensor x = torch::ones({3});
  EXPECT_FALSE(is_divided(x));
  EXPECT_FALSE(is_divided(torch::Tensor()));
  EXPECT_TRUE(whole_of(x).is_same(x));
  EXPECT_TRUE(torch::equal(on_part(x, [](const torch::Tensor& part) { return part * 2; }), torch::full({3}, 2.0)));
}

TEST(Divided, PartsAreComputedAndPutTogether) {
  const torch::Tensor x(c10::make_intrusive<FirstHalf>(torch::tensor({1.0, 2.0})));
  EXPECT_TRUE(is_divided(x));
  EXPECT_EQ(x.sizes(), torch::IntArrayRef({4}));
  const torch::Tensor doubled = on_part(x, [](const torch::Tensor& part) { return part * 2; });
  EXPECT_TRUE(is_divided(doubled));
  EXPECT_TRUE(torch::equal(whole_of(doubled), torch::tensor({2.0, 4.0, 2.0, 4.0})));
}

}  // namespace
}  // namespace cohort::divided_test
