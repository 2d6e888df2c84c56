// The dense layer's one operation, held to LibTorch's.
#include "ops/dense_product.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "base/cpu_threads.h"
#include "base/libtorch_compat.h"
#include "base/parallel.h"
#include "cohort/distributed_dataset.h"
#include "cohort/optimizer.h"
#include "cohort/parallel/pipeline_strategy.h"
#include "ops/adds_gradient.h"

namespace cohort::dense_product_test {
namespace {

struct Case {
  torch::Tensor x, weight, bias;

  std::vector<torch::Tensor> all() const { return {x, weight, bias}; }
  torch::Tensor ours(bool relu) const { return dense_product(x, weight, bias, relu); }
  torch::Tensor theirs(bool relu) const {
    const torch::Tensor y = torch::nn::functional::linear(x, weight, bias);
    return relu ? torch::relu(y) : y;
  }
};

Case make(std::vector<int64_t> sizes, int64_t units, torch::Dtype dtype = torch::kDouble) {
  torch::manual_seed(3);
  const auto options = torch::TensorOptions().dtype(dtype);
  return {.x = torch::randn(sizes, options).requires_grad_(),
          .weight = torch::randn({units, sizes.back()}, options).requires_grad_(),
          .bias = torch::randn({units}, options).requires_grad_()};
}

void expect_same(const std::vector<torch::Tensor>& ours, const std::vector<torch::Tensor>& theirs, double room) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].sizes(), theirs[i].sizes());
    EXPECT_TRUE(torch::allclose(ours[i], theirs[i], room, room)) << i << "\n" << ours[i] - theirs[i];
  }
}

// Their products are divided, by columns or by rows.
constexpr std::tuple<int64_t, int64_t, int64_t> kLarge[] = {{20, 300, 520}, {1200, 140, 10}, {40, 520, 260}};

std::vector<torch::Tensor> passes(const Case& own) {
  const torch::Tensor y = own.ours(/*relu=*/true);
  const torch::Tensor weights = torch::linspace(-1, 1, y.numel(), torch::kDouble).view(y.sizes());
  std::vector<torch::Tensor> made = torch::autograd::grad({(y * weights).sum()}, own.all());
  made.push_back(y.detach());
  return made;
}

TEST(DenseProduct, IsTheSameOnTheThreadsOfAnOperation) {
  for (const auto& [rows, inputs, units] : kLarge) {
    for (const torch::Dtype dtype : {torch::kDouble, torch::kFloat}) {
      const Case own = make({rows, inputs}, units, dtype);
      const double room = dtype == torch::kDouble ? 1e-12 : 1e-3;
      std::optional<IntraOpThreads> threads(std::in_place, 1);
      const std::vector<torch::Tensor> alone = passes(own);
      threads.emplace(3);
      expect_same(passes(own), alone, room);
    }
  }
}

TEST(DenseProduct, IsTheSameOnATeam) {
  for (const auto& [rows, inputs, units] : kLarge) {
    const Case own = make({rows, inputs}, units);
    const std::vector<torch::Tensor> alone = passes(own);
    std::atomic<int> divided = 0;
    const LoopTeam team(2, [&](const std::function<void(int)>& piece) {
      ++divided;
      std::thread other(piece, 1);
      piece(0);
      other.join();
    });
    expect_same(passes(own), alone, 1e-12);
    EXPECT_GE(divided, 3);  // one forward, two backward
  }
}

TEST(DenseProduct, IsTheLinearLayerOfLibTorchWithItsGradients) {
  for (const bool relu : {false, true}) {
    for (const auto& [sizes, units] : {std::pair<std::vector<int64_t>, int64_t>{{5, 3}, 4},
                                       {{1, 1}, 1},
                                       {{70, 9}, 600},
                                       {{2, 3, 7}, 5},
                                       {{6}, 2},
                                       {{3, 7, 5}, 45}}) {
      for (const torch::Dtype dtype : {torch::kDouble, torch::kFloat}) {
        const double room = dtype == torch::kDouble ? 1e-12 : 1e-4;
        const Case own = make(sizes, units, dtype);
        const torch::Tensor y = own.ours(relu);
        ASSERT_TRUE(y.defined());
        EXPECT_EQ(y.grad_fn()->name(), "DenseBackward");
        expect_same({y}, {own.theirs(relu)}, room);
        const torch::Tensor weights = torch::randn_like(y);
        expect_same(torch::autograd::grad({(y * weights).sum()}, own.all()),
                    torch::autograd::grad({(own.theirs(relu) * weights).sum()}, own.all()), room);
      }
    }
  }
}

TEST(DenseProduct, HasGradientsOfItsGradients) {
  const Case own = make({5, 3}, 4);
  const auto twice = [&](const torch::Tensor& y) {
    const auto first = torch::autograd::grad({y.square().sum()}, own.all(), {}, true, /*create_graph=*/true);
    return torch::autograd::grad({first[0].square().sum() + first[1].square().sum() + first[2].sum()}, own.all());
  };
  expect_same(twice(own.ours(true)), twice(own.theirs(true)), 1e-12);
}

TEST(DenseProduct, ComputesWhatIsAskedFor) {
  const Case own = make({5, 3}, 4);
  const torch::Tensor y = dense_product(own.x.detach(), own.weight, own.bias.detach(), true);
  const auto gradients = torch::autograd::grad({y.sum()}, {own.weight});
  expect_same(gradients, torch::autograd::grad({own.theirs(true).sum()}, {own.weight}), 1e-12);
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(own.ours(true).requires_grad());
}

// The gradient that comes is overwritten unless somebody has it.
TEST(DenseProduct, LeavesGradientsOfOthersAlone) {
  const Case own = make({5, 3}, 4);
  const torch::Tensor y = own.ours(true);
  const torch::Tensor given = torch::randn_like(y);
  const torch::Tensor before = given.clone();
  torch::Tensor seen;
  y.register_hook([&](const torch::Tensor& gradient) { seen = gradient; });
  y.backward(given);
  EXPECT_TRUE(torch::equal(given, before));
  EXPECT_TRUE(torch::equal(seen, before));
}

// The bytes of such gradients are not their values: a number that is negated later, and zeros without memory.
TEST(DenseProduct, TakesGradientsThatAreNotThere) {
  for (const bool relu : {false, true}) {
    const Case own = make({5, 3}, 4);
    const torch::Tensor numbers = torch::randn({5, 4}, torch::kDouble);
    for (const torch::Tensor& given : {numbers._neg_view(), torch::_efficientzerotensor({5, 4}, torch::kDouble)}) {
      expect_same(torch::autograd::grad({own.ours(relu)}, own.all(), {given}),
                  torch::autograd::grad({own.theirs(relu)}, own.all(), {given}), 1e-12);
    }
  }
}

TEST(DenseProduct, NoticesWhatWasChangedMeanwhile) {
  const Case own = make({5, 3}, 4);
  const torch::Tensor y = own.ours(true);
  {
    const torch::NoGradGuard no_grad;
    own.weight.add_(1);
  }
  EXPECT_THROW(y.sum().backward(), c10::Error);
  const Case other = make({5, 3}, 4);
  torch::Tensor result = other.ours(true);
  result.detach().zero_();
  EXPECT_THROW(result.sum().backward(), c10::Error);
  const Case twice = make({5, 3}, 4);
  const torch::Tensor sum = twice.ours(true).sum();
  sum.backward();
  EXPECT_THROW(sum.backward(), c10::Error) << "its tensors are given up";
}

// As the microbatches of a pipeline have it: only the first one's gradient is a tensor of its own.
TEST(DenseProduct, AddsTheGradientOfItsWeightToASumThatIsThere) {
  for (const bool relu : {false, true}) {
    const Case own = make({5, 3}, 4);
    const torch::Tensor weights = torch::randn({5, 4}, torch::kDouble);
    const std::vector<torch::Tensor> wanted = torch::autograd::grad({(own.theirs(relu) * weights).sum()}, own.all());
    const torch::Tensor y = own.ours(relu);
    auto* const adds = dynamic_cast<AddsGradient*>(y.grad_fn().get());
    ASSERT_NE(adds, nullptr);
    torch::Tensor sum;
    adds->add_to(0, [] { return torch::ones({5, 3}, torch::kDouble); });  // an input's is returned
    adds->add_to(1, [&] { return sum; });
    const auto gradients = [&] {
      return torch::autograd::grad({(y * weights).sum()}, own.all(), {}, /*retain_graph=*/true, /*create_graph=*/false,
                                   /*allow_unused=*/true);
    };
    expect_same(gradients(), wanted, 1e-12);
    sum = torch::ones({4, 3}, torch::kDouble);
    const std::vector<torch::Tensor> second = gradients();
    EXPECT_FALSE(second[1].defined());
    expect_same({second[0], second[2], sum}, {wanted[0], wanted[2], wanted[1] + 1}, 1e-12);
  }
}

TEST(DenseProduct, IsLibTorchsWhereItHasToBe) {
  const Case own = make({2, 5, 3}, 4);
  EXPECT_EQ(affine(own.x, own.weight, own.bias).grad_fn()->name(), "DenseBackward");
  for (const torch::Tensor& x : {own.x, own.x.slice(0, 0, 0), own.x.transpose(0, 1)}) {
    for (const torch::Tensor& bias : {own.bias, torch::Tensor()}) {
      expect_same({affine(x, own.weight, bias)}, {at::linear(x, own.weight, bias)}, 1e-12);
    }
  }
  torch::nn::Linear layer(3, 4);
  const torch::Tensor x = torch::randn({2, 3});
  expect_same({affine(layer, x)}, {layer->forward(x)}, 1e-6);
}

struct TwoStagesImpl : torch::nn::Module {
  TwoStagesImpl() : first(register_module("first", torch::nn::Linear(4, 3))) {
    second = register_module("second", torch::nn::Linear(3, 2));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = affine(second, next_stage(affine(first, x)));
    const std::lock_guard lock(mutex);
    made_by.push_back(y.grad_fn()->name());
    return y;
  }
  torch::nn::Linear first, second{nullptr};
  std::mutex mutex;
  std::vector<std::string> made_by;
};
TORCH_MODULE(TwoStages);

// That one notes what the stages use; a run that begins again there has the bits of one that has gone on.
TEST(DenseProduct, IsTheSameInTheFirstStepOfAPipeline) {
  const PipelineStrategy strategy({.devices = cpu_devices(2), .schedule = Schedule1F1B{.microbatches = 2}});
  const auto net = strategy.mirror([] { return TwoStages(); });
  const MirroredOptimizer sgd = strategy.optimizer(net, SGD({.learning_rate = 0.1}));
  const GlobalBatch batch({Example{.x = torch::randn({6, 4}), .y = torch::zeros({6})}}, 6);
  const torch::Tensor before = net[std::size_t{0}]->first->bias.clone();
  for (int step = 0; step < 2; ++step) {
    strategy.run(
        [&](Replica& replica, const Example& part) {
          sgd[replica].minimize(replica.global_mean(net[replica]->forward(part.x).square().sum(1)));
        },
        batch);
  }
  EXPECT_EQ(net[std::size_t{0}]->made_by, std::vector<std::string>(4, "DenseBackward"));
  EXPECT_FALSE(torch::equal(net[std::size_t{0}]->first->bias, before));
}

TEST(DenseProduct, LeavesOtherTensorsToLibTorch) {
  const Case own = make({6, 3}, 4, torch::kFloat);
  EXPECT_FALSE(dense_product(own.x.t().contiguous().t(), own.weight, own.bias, true).defined()) << "strides";
  EXPECT_FALSE(dense_product(own.x.to(torch::kDouble), own.weight, own.bias, true).defined());
  EXPECT_FALSE(dense_product(own.x.slice(0, 0, 0), own.weight, own.bias, true).defined()) << "empty";
  EXPECT_FALSE(dense_product(own.x, own.weight, {}, true).defined());
  EXPECT_FALSE(dense_product(own.x, own.weight, own.bias.slice(0, 0, 1), true).defined()) << "one bias for all units";
  EXPECT_FALSE(dense_product(own.x, own.weight.slice(0, 0, 0), own.bias.slice(0, 0, 0), true).defined()) << "no units";
  const compat::Autocast autocast(torch::kCPU, torch::kBFloat16);
  EXPECT_FALSE(own.ours(true).defined());
}

}  // namespace
}  // namespace cohort::dense_product_test
