// The cross-entropy's one operation, held to LibTorch's.
#include "ops/entropy_rows.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "base/libtorch_compat.h"
#include "cohort/error.h"
#include "cohort/train/losses.h"

namespace cohort::entropy_rows_test {
namespace {

struct Case {
  torch::Tensor logits, labels;

  torch::Tensor theirs(at::Reduction::Reduction reduction) const {
    return at::nll_loss(at::log_softmax(logits, 1), labels, {}, reduction);
  }
};

Case make(int64_t rows, int64_t classes, torch::Dtype dtype = torch::kDouble) {
  torch::manual_seed(3);
  return {.logits = (torch::randn({rows, classes}, torch::TensorOptions().dtype(dtype)) * 5).requires_grad_(),
          .labels = torch::randint(classes, {rows}, torch::kLong)};
}

void expect_close(const torch::Tensor& ours, const torch::Tensor& theirs, double room) {
  ASSERT_EQ(ours.sizes(), theirs.sizes());
  EXPECT_TRUE(torch::allclose(ours, theirs, room, room)) << (ours - theirs).abs().max();
}

torch::Tensor gradient(const torch::Tensor& y, const torch::Tensor& x) {
  return torch::autograd::grad({y}, {x}).front();
}

TEST(EntropyRows, AreThoseOfLibTorchWithTheirGradients) {
  for (const auto& [rows, classes] : {std::pair<int64_t, int64_t>{1, 1}, {5, 3}, {64, 10}, {3, 1100}, {40, 700}}) {
    for (const torch::Dtype dtype : {torch::kDouble, torch::kFloat}) {
      const double room = dtype == torch::kDouble ? 1e-12 : 1e-5;
      const Case own = make(rows, classes, dtype);
      const torch::Tensor each = entropy_of_rows(own.logits, own.labels);
      ASSERT_TRUE(each.defined());
      EXPECT_EQ(each.grad_fn()->name(), "EntropyBackward");
      const torch::Tensor theirs = own.theirs(at::Reduction::None);
      expect_close(each, theirs, room);
      const torch::Tensor weights = torch::randn_like(each);
      expect_close(gradient((each * weights).sum(), own.logits), gradient((theirs * weights).sum(), own.logits), room);
      expect_close(gradient(entropy_of_rows(own.logits, own.labels).sum(), own.logits),
                   gradient(own.theirs(at::Reduction::Sum), own.logits), room);
      const EntropySums all = entropy_of_all_rows(own.logits, own.labels, 8.0, 2.0);
      const torch::Tensor sum = own.theirs(at::Reduction::Sum);
      expect_close(all.value, sum / 8.0, room);
      expect_close(all.total, sum / 2.0, room);
      expect_close(gradient(all.value + 3 * all.total, own.logits), gradient(sum * 1.625, own.logits), room);
    }
  }
}

TEST(EntropyRows, HaveGradientsOfTheirGradients) {
  const Case own = make(5, 3);
  const auto twice = [&](const torch::Tensor& y) {
    const auto first = torch::autograd::grad({y}, {own.logits}, {}, true, /*create_graph=*/true).front();
    return gradient(first.square().sum(), own.logits);
  };
  expect_close(twice(entropy_of_rows(own.logits, own.labels).square().sum()),
               twice(own.theirs(at::Reduction::None).square().sum()), 1e-12);
  const EntropySums all = entropy_of_all_rows(own.logits, own.labels, 4.0, 1.0);
  expect_close(twice(all.value + all.total), twice(own.theirs(at::Reduction::Sum) * 1.25), 1e-12);
}

TEST(EntropyRows, PassOnWhatIsNoNumber) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double odd : {kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    const Case own = make(2, 3);
    const torch::Tensor logits = own.logits.detach().clone();
    logits[0][1] = odd;
    const torch::Tensor each = entropy_of_rows(logits, own.labels);
    EXPECT_TRUE(each[0].isnan().item<bool>());
    EXPECT_TRUE(each[1].isfinite().item<bool>());
  }
  const Case masked = make(2, 3);
  const torch::Tensor logits = masked.logits.detach().clone();
  logits[0][1] = -kInfinity;
  logits[1][2] = -2000.0;
  const torch::Tensor labels = torch::tensor({0, 0}, torch::kLong);
  expect_close(entropy_of_rows(logits, labels), at::nll_loss(at::log_softmax(logits, 1), labels, {}, 0), 1e-12);
}

TEST(EntropyRows, NoticeWhatWasChangedMeanwhileAndWhatIsNoClass) {
  const Case own = make(5, 3);
  const torch::Tensor each = entropy_of_rows(own.logits, own.labels);
  {
    const torch::NoGradGuard no_grad;
    own.logits.add_(1);
  }
  EXPECT_THROW(each.sum().backward(), c10::Error);
  for (const int64_t label : {-1, 3}) {
    const torch::Tensor labels = own.labels.clone();
    labels[2] = label;
    EXPECT_THROW((void)entropy_of_rows(own.logits, labels), c10::IndexError);
    EXPECT_THROW((void)SparseCategoricalCrossentropy({.from_logits = true})(labels, own.logits), InvalidArgument);
  }
}

TEST(EntropyRows, LeaveOtherTensorsToLibTorch) {
  const Case own = make(6, 3, torch::kFloat);
  EXPECT_FALSE(entropy_of_rows(own.logits.t().contiguous().t(), own.labels).defined()) << "strides";
  EXPECT_FALSE(entropy_of_rows(own.logits.to(torch::kHalf), own.labels).defined());
  EXPECT_FALSE(entropy_of_rows(own.logits.slice(0, 0, 0), own.labels.slice(0, 0, 0)).defined()) << "empty";
  EXPECT_FALSE(entropy_of_rows(own.logits, own.labels.unsqueeze(1)).defined());
  const compat::Autocast autocast(torch::kCPU, torch::kBFloat16);
  EXPECT_FALSE(entropy_of_rows(own.logits, own.labels).defined());
}

}  // namespace
}  // namespace cohort::entropy_rows_test
