// Graphs of a card's work, and functions that run as such.
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cohort.h"
#include "device/backend.h"
#include "optimizer/update_rule.h"
#include "tests/gpu/cards.h"
#include "tests/support/errors.h"
#include "wings/function/device/graph_capture.h"

namespace cohort::graph_test {
namespace {

using namespace gpu;

using cohort::testing::error_of;
using cohort::testing::expect_error;

torch::Device card() {
  return find_logical_device(on_cards(1)[0]).torch_device;
}

// Bits on the stand-in; on a card algorithms may differ.
::testing::AssertionResult same(const torch::Tensor& one, const torch::Tensor& other) {
  const torch::Tensor a = one.detach().cpu();
  const torch::Tensor b = other.detach().cpu();
  if (stands_in() ? torch::equal(a, b) : torch::allclose(a, b, 1e-5, 1e-6)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "the numbers differ by " << (a - b).abs().max().item<double>();
}

// ---- What a graph of a device is.

TEST(DeviceGraph, DoesNothingUntilItIsReplayed) {
  COHORT_NEEDS_CARDS(1);
  const torch::Tensor x = torch::ones({3}, card());
  torch::Tensor sum = torch::zeros({3}, card());
  const auto graph = backend_of(card()).make_graph(card(), {});
  (void)(sum + x);
  graph->begin();
  sum.add_(x * 2);
  graph->end();
  EXPECT_TRUE(same(sum, torch::zeros({3})));
  for (int i = 0; i < 3; ++i) graph->replay(0);
  EXPECT_TRUE(same(sum, torch::full({3}, 6.0)));
  x.copy_(torch::full({3}, 10.0), /*non_blocking=*/true);
  graph->replay(0);
  EXPECT_TRUE(same(sum, torch::full({3}, 26.0)));
}

TEST(DeviceGraph, HasBackwardPasses) {
  COHORT_NEEDS_CARDS(1);
  const torch::Tensor x = torch::ones({4}, card());
  torch::Tensor weight = torch::full({4}, 2.0, torch::dtype(torch::kFloat).device(card())).requires_grad_();
  const auto descend = [&] {
    (weight * x).square().sum().backward();
    const torch::NoGradGuard no_grad;
    weight.sub_(weight.grad(), 0.25);
    weight.mutable_grad() = torch::Tensor();
  };
  descend();
  EXPECT_TRUE(same(weight, torch::ones({4})));
  const auto graph = backend_of(card()).make_graph(card(), {});
  graph->begin();
  descend();
  graph->end();
  EXPECT_TRUE(same(weight, torch::ones({4})));
  graph->replay(0);
  graph->replay(0);
  EXPECT_TRUE(same(weight, torch::full({4}, 0.25)));
}

TEST(DeviceGraph, DrawsNewNumbersAtEachReplay) {
  COHORT_NEEDS_CARDS(1);
  const auto draw = [](bool captured) {
    at::Generator generator = backend_of(card()).make_generator(card());
    generator.set_current_seed(5);
    torch::Tensor drawn = torch::zeros({6}, card());
    std::vector<torch::Tensor> all;
    const auto graph = backend_of(card()).make_graph(card(), {generator});
    if (captured) {
      graph->begin();
      drawn.uniform_(0, 1, generator);
      graph->end();
    }
    for (int i = 0; i < 3; ++i) {
      if (captured) {
        graph->replay(0);
      } else {
        drawn.uniform_(0, 1, generator);
      }
      all.push_back(drawn.cpu());
    }
    return torch::stack(all);
  };
  const torch::Tensor drawn = draw(true);
  EXPECT_TRUE(same(drawn, draw(false)));
  EXPECT_FALSE(torch::equal(drawn[0], drawn[1]));
}

// A wait invalidates a capture. What is drawn and allocated afterwards has to be as if there had been none.
TEST(DeviceGraph, GivesUpWhatIsInvalidated) {
  COHORT_NEEDS_CARDS(1);
  at::Generator generator = backend_of(card()).make_generator(card());
  const torch::Tensor drawn = torch::zeros({6}, card());
  const auto draw = [&] {
    drawn.uniform_(0, 1, generator);
    return drawn.cpu();
  };
  generator.set_current_seed(5);
  const torch::Tensor wanted = torch::stack({draw(), draw()});
  generator.set_current_seed(5);
  const auto graph = backend_of(card()).make_graph(card(), {generator});
  for (int i = 0; i < 2; ++i) {
    graph->begin();
    drawn.uniform_(0, 1, generator);
    EXPECT_ANY_THROW((void)drawn.sum().item<double>());
    graph->abandon();
    generator.set_current_seed(5);
    EXPECT_TRUE(same(draw(), wanted[0]));
  }
  graph->begin();
  drawn.uniform_(0, 1, generator);
  graph->end();
  graph->replay(0);
  EXPECT_TRUE(same(drawn, wanted[1]));
}

TEST(DeviceGraph, OfTheStandInMissesMemoryThatIsGone) {
  if (!stands_in()) GTEST_SKIP() << "no stand-in for cards was asked for";
  torch::Tensor x = torch::ones({3}, card());
  const torch::Tensor sum = torch::zeros({3}, card());
  const auto graph = backend_of(card()).make_graph(card(), {});
  graph->begin();
  sum.add_(x);
  graph->end();
  x = torch::Tensor();
  expect_error<c10::Error>([&] { graph->replay(0); }, "memory of [3] that it uses is gone");
}

// LibTorch adds a gradient up on the stream on which its accumulator was made, which somebody keeps here.
TEST(DeviceGraph, OfTheStandInRefusesGradientsOfAnotherStream) {
  if (!stands_in()) GTEST_SKIP() << "no stand-in for cards was asked for";
  const torch::Tensor x = torch::ones({4}, card());
  const torch::Tensor weight = torch::ones({4}, card()).requires_grad_();
  torch::Tensor kept = (weight * x).sum();
  const auto graph = backend_of(card()).make_graph(card(), {});
  graph->begin();
  expect_error<c10::Error>([&] { (weight * x).sum().backward(); }, "a gradient of shape [4] is added up on another");
  graph->abandon();
  kept = torch::Tensor();
  graph->begin();
  (weight * x).sum().backward();
  graph->end();
  graph->replay(0);
  EXPECT_TRUE(same(weight.grad(), torch::ones({4})));
}

// ---- What the host does between its segments, before and behind them.

TEST(GraphCapture, ActsBeforeItsSegmentsAndBehindThem) {
  COHORT_NEEDS_CARDS(1);
  const torch::Tensor x = torch::zeros({2}, card());
  const auto owner = std::make_shared<int>();
  std::vector<std::string> acts;
  double value = 1.0;
  GraphCapture capture(card(), {}, "work");
  const torch::Tensor y = x + 1;
  const auto write = [&] {
    acts.emplace_back("before");
    x.fill_(value);
  };
  capture.before({.act = write, .owner = std::weak_ptr<const void>(owner)});
  capture.behind({.act = [&] { acts.emplace_back("behind"); }});
  EXPECT_EQ(capture.segments(), 0U);
  EXPECT_TRUE(acts.empty()) << "nothing is done before the segment ends";
  capture.part({.act = [&] { acts.emplace_back("part"); }});
  EXPECT_EQ(capture.segments(), 1U);
  const torch::Tensor z = y * 2;
  CapturedWork work = capture.finish();
  EXPECT_TRUE(same(z, torch::full({2}, 4.0)));
  value = 2.0;
  work.run();
  EXPECT_TRUE(same(z, torch::full({2}, 6.0)));
  EXPECT_EQ(acts, (std::vector<std::string>{"before", "behind", "part", "before", "behind", "part"}));
}

TEST(GraphCapture, NeedsTheOwnersOfWhatIsDoneAroundIt) {
  COHORT_NEEDS_CARDS(1);
  auto owner = std::make_shared<int>();
  GraphCapture capture(card(), {}, "work");
  capture.behind({.act = [] {}, .owner = std::weak_ptr<const void>(owner)});
  const CapturedWork work = capture.finish();
  EXPECT_TRUE(work.is_current());
  owner.reset();
  EXPECT_FALSE(work.is_current());
}

TEST(GraphCapture, HasKernels) {
  COHORT_NEEDS_CARDS(1);
  if (backend_of(card()).kernels() == kernels::Reach::kNone) GTEST_SKIP() << "this build has no kernels for cards";
  const torch::Tensor p = torch::zeros({3}, card());
  const torch::Tensor g = torch::ones({3}, card());
  const Optimizer sgd = SGD({});
  const Segment segment{.reach = backend_of(card()).kernels(),
                        .dtype = torch::kFloat,
                        .parameter = p.data_ptr(),
                        .gradient = g.data_ptr(),
                        .size = 3};
  GraphCapture capture(card(), {}, "work");
  const std::vector<torch::Tensor> used{p, g};
  begin_kernel(used, [&] { sgd.rule().update(segment, StepContext{.learning_rate = 0.5}); });
  CapturedWork work = capture.finish();
  EXPECT_TRUE(same(p, torch::full({3}, -0.5)));
  work.run();
  EXPECT_TRUE(same(p, torch::full({3}, -1.0)));
}

TEST(GraphCapture, DoesItsPartsInTheirPlaces) {
  COHORT_NEEDS_CARDS(1);
  const torch::Tensor x = torch::ones({2}, card());
  double factor = 2.0;
  std::vector<double> seen;
  GraphCapture capture(card(), {}, "work");
  const torch::Tensor y = x + 1;
  const auto owner = std::make_shared<int>();
  const auto look = [&] { seen.push_back(y.sum().item<double>()); };
  capture.part({.act = look, .owner = std::weak_ptr<const void>(owner)});
  EXPECT_EQ(GraphCapture::current(), &capture);
  const torch::Tensor number = capture.number([&] { return factor; }, torch::kFloat);
  const torch::Tensor z = y * number;
  CapturedWork work = capture.finish();
  EXPECT_EQ(GraphCapture::current(), nullptr);
  EXPECT_TRUE(same(z, torch::full({2}, 4.0)));
  factor = 3.0;
  x.fill_(4.0);
  ASSERT_TRUE(work.is_current());
  work.run();
  EXPECT_TRUE(same(z, torch::full({2}, 15.0)));
  EXPECT_EQ(seen, (std::vector<double>{4.0, 10.0}));
}

TEST(GraphCapture, LetsErrorsOfItsPartsOut) {
  COHORT_NEEDS_CARDS(1);
  const torch::Tensor x = torch::ones({2}, card());
  GraphCapture capture(card(), {}, "work");
  expect_error<c10::Error>([&] { capture.part({.act = [&] { (void)(x + torch::ones({3}, card())); }}); }, "size");
  EXPECT_EQ(GraphCapture::current(), nullptr);
}

// ---- Functions.

TEST(CapturedFunction, RunsTheGraphFromTheFourthCallOn) {
  COHORT_NEEDS_CARDS(1);
  int calls = 0;
  torch::Tensor total = torch::zeros({2}, card());
  const auto f = function(
      [&](const torch::Tensor& x, double by) {
        ++calls;
        total.add_(x * by);
        return total + 1;
      },
      {.name = "f", .jit_compile = true});
  std::vector<torch::Tensor> results;
  for (int i = 1; i <= 6; ++i)
    results.push_back(f(torch::full({2}, i, torch::dtype(torch::kFloat).device(card())), 2.0));
  EXPECT_EQ(calls, 3) << "two to warm up, and one that is captured";
  EXPECT_TRUE(same(total, torch::full({2}, 42.0)));
  for (int i = 1; i <= 6; ++i) EXPECT_TRUE(same(results[i - 1], torch::full({2}, i * (i + 1) + 1.0))) << i;
  f(torch::ones({2}, card()), 3.0);  // another signature
  EXPECT_EQ(calls, 4);
  EXPECT_TRUE(same(total, torch::full({2}, 45.0)));
}

TEST(CapturedFunction, WithoutJitCompileIsTheFunctionItself) {
  COHORT_NEEDS_CARDS(1);
  int calls = 0;
  for (const std::optional<bool> jit : {std::optional<bool>(), std::optional(false)}) {
    const auto f =
        function([&](const torch::Tensor& x) { return ++calls, x.sum().item<double>(); }, {.jit_compile = jit});
    for (int i = 0; i < 4; ++i) EXPECT_EQ(f(torch::ones({3}, card())), 3.0);
  }
  EXPECT_EQ(calls, 8);
}

TEST(CapturedFunction, WritesItsArguments) {
  COHORT_NEEDS_CARDS(1);
  const auto f =
      function([](torch::Tensor x, const torch::Tensor& y) { x.add_(y); }, {.name = "f", .jit_compile = true});
  const torch::Tensor y = torch::ones({3}, card());
  for (int i = 0; i < 5; ++i) {
    torch::Tensor x = torch::full({3}, 1.0 * i, torch::dtype(torch::kFloat).device(card()));
    f(x, y);
    EXPECT_TRUE(same(x, torch::full({3}, i + 1.0))) << i;
  }
  expect_error<FailedPrecondition>([&] { f(y, y); }, "is written and shares its memory with another one");
}

TEST(CapturedFunction, EndsGradients) {
  COHORT_NEEDS_CARDS(1);
  const torch::Tensor weight = torch::ones({3}, card()).requires_grad_();
  const auto f =
      function([&](const torch::Tensor& x) { return (x * weight).sum(); }, {.name = "f", .jit_compile = true});
  for (int i = 0; i < 4; ++i) {
    const torch::Tensor sum = f(torch::ones({3}, card()));
    EXPECT_TRUE(sum.requires_grad());
    expect_error<Unimplemented>([&] { sum.backward(); }, "f: gradients do not flow out of a function");
  }
  const auto g =
      function([](const torch::Tensor& x) { x.square().sum().backward(); }, {.name = "g", .jit_compile = true});
  expect_error<InvalidArgument>([&] { g(torch::ones({3}, card()).requires_grad_()); }, "got a gradient");
}

TEST(CapturedFunction, IsCapturedAgainWhereItsTensorsAreGone) {
  COHORT_NEEDS_CARDS(1);
  int calls = 0;
  torch::Tensor weight = torch::ones({3}, card());
  const auto f = function([&](const torch::Tensor& x) { return ++calls, (x * weight).sum(); }, {.jit_compile = true});
  const torch::Tensor x = torch::ones({3}, card());
  for (int i = 0; i < 4; ++i) f(x);
  EXPECT_EQ(calls, 3);
  weight = torch::full({3}, 5.0, torch::dtype(torch::kFloat).device(card()));
  EXPECT_TRUE(same(f(x), torch::tensor(15.0F)));
  EXPECT_TRUE(same(f(x), torch::tensor(15.0F)));
  EXPECT_EQ(calls, 4);
}

// Gradients that somebody else takes away are made by each call, so that no graph can be kept.
TEST(CapturedFunction, RunsAsItIsWhereItIsCapturedTooOften) {
  COHORT_NEEDS_CARDS(1);
  int calls = 0;
  torch::Tensor weight = torch::ones({3}, card()).requires_grad_();
  const auto f = function([&](const torch::Tensor& x) { ++calls, (x * weight).sum().backward(); },
                          {.name = "f", .jit_compile = true});
  for (int i = 0; i < 9; ++i) {
    f(torch::full({3}, 1.0 * i, torch::dtype(torch::kFloat).device(card())));
    ASSERT_TRUE(weight.grad().defined()) << i;
    EXPECT_TRUE(same(weight.grad(), torch::full({3}, 1.0 * i))) << i;
    weight.mutable_grad() = torch::Tensor();
  }
  EXPECT_EQ(calls, 9);
}

TEST(CapturedFunction, KeepsSoManyGraphs) {
  COHORT_NEEDS_CARDS(1);
  int calls = 0;
  const auto f = function([&](const torch::Tensor& x) { return ++calls, x * 2; },
                          {.name = "f", .kept_signatures = 2, .jit_compile = true});
  for (int round = 0; round < 5; ++round) {
    for (int64_t size = 1; size <= 3; ++size)
      EXPECT_TRUE(same(f(torch::ones({size}, card())), torch::full({size}, 2.0)));
  }
  EXPECT_EQ(calls, 3 + 3 + 5);
}

TEST(CapturedFunction, NamesWhatCannotBeCaptured) {
  COHORT_NEEDS_CARDS(1);
  const torch::Tensor x = torch::ones({3}, card());
  const auto reads =
      function([](const torch::Tensor& x) { return x.sum().item<double>(); }, {.name = "reads", .jit_compile = true});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(reads(x), 3.0);
  const std::string message = error_of<NotCapturable>([&] { reads(x); });
  EXPECT_NE(message.find("reads cannot be captured as a graph of " + card().str() + ": aten::item is refused there"),
            std::string::npos)
      << message;
  EXPECT_TRUE(same(x * 2, torch::full({3}, 2.0))) << "the card goes on";

  const torch::Tensor host = torch::ones({3});
  const auto takes = function([&](const torch::Tensor& x) { return x + host.to(x.device(), /*non_blocking=*/true); },
                              {.name = "takes", .jit_compile = true});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(same(takes(x), torch::full({3}, 2.0)));
  expect_error<NotCapturable>([&] { takes(x); }, "takes cannot be captured");
  expect_error<NotCapturable>([&] { takes(x); }, "it copies a tensor of shape [3] from cpu to " + card().str());

  const auto compiled = function([](const torch::Tensor& x) { return x; }, {.name = "compiled", .jit_compile = true});
  expect_error<InvalidArgument>([&] { compiled(host); }, "compiled: jit_compile is true, but on cpu");
}

}  // namespace
}  // namespace cohort::graph_test
