// Backward passes of which LibTorch's engine knows nothing, and those that are its own, because something would tell
// the difference.
#include "ops/line_backward.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/torch.h>

#include <functional>
#include <utility>

#include "base/libtorch_compat.h"
#include "ops/dense_product.h"
#include "ops/entropy_rows.h"

namespace cohort::line_backward_test {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

struct Seen {
  int calls = 0;
  int by_engine = 0;
};

// x + y, which says who asks for its gradients.
template <typename Base>
class SumBackward final : public Base {
 public:
  SumBackward(torch::autograd::edge_list&& edges, Seen& seen) : Base(std::move(edges)), seen_(seen) {}

  variable_list apply(variable_list&& gradients) override {
    EXPECT_FALSE(at::GradMode::is_enabled());
    ++seen_.calls;
    seen_.by_engine += torch::autograd::get_current_graph_task_exec_info() != nullptr ? 1 : 0;
    return {gradients[0].clone(), gradients[0].clone()};
  }

 private:
  Seen& seen_;
};

struct Sums {
  template <typename Base = LineNode>
  torch::Tensor add(const torch::Tensor& x, const torch::Tensor& y) {
    torch::Tensor sum = (x + y).detach();
    torch::autograd::set_history(
        sum, compat::make_grad_fn<SumBackward<Base>>(torch::autograd::collect_next_edges(x, y), seen));
    return sum;
  }

  torch::Tensor a = torch::ones({}).requires_grad_();
  torch::Tensor b = torch::ones({}).requires_grad_();
  torch::Tensor c = torch::ones({}).requires_grad_();
  Seen seen;
};

TEST(LineBackward, GoesAlongNodesOfOurOwn) {
  Sums own;
  const torch::Tensor loss = own.add(own.add(own.a, own.b), own.c);
  run_backward(loss);
  EXPECT_EQ(own.seen.calls, 2);
  EXPECT_EQ(own.seen.by_engine, 0);
  run_backward(own.add(own.add(own.a, torch::zeros({})), own.b));
  EXPECT_EQ(own.seen.by_engine, 0);
  EXPECT_EQ(own.a.grad().item<float>(), 2.0F) << "is added to the one that is there";
  EXPECT_EQ(own.b.grad().item<float>(), 2.0F);
  EXPECT_EQ(own.c.grad().item<float>(), 1.0F);
  EXPECT_FALSE(own.a.grad().requires_grad());
  EXPECT_TRUE(own.a.grad().is_leaf());
}

TEST(LineBackward, GivesGradientsToTheLeavesThatWereNamedAlone) {
  Sums own;
  run_backward_for(own.add(own.a, own.b), {own.b, own.a, own.c});
  EXPECT_EQ(own.seen.by_engine, 0) << "the line leads to no others";
  EXPECT_EQ(own.a.grad().item<float>(), 1.0F);
  EXPECT_FALSE(own.c.grad().defined());
  run_backward_for(own.add(own.add(own.a, own.b), own.c), {own.b});
  EXPECT_EQ(own.seen.by_engine, 2) << "the engine does not compute what nobody gets";
  EXPECT_EQ(own.a.grad().item<float>(), 1.0F);
  EXPECT_EQ(own.b.grad().item<float>(), 2.0F);
  EXPECT_FALSE(own.c.grad().defined());
  run_backward_for(own.add(own.a, own.b) * own.c, {own.c});
  EXPECT_EQ(own.b.grad().item<float>(), 2.0F);
  EXPECT_EQ(own.c.grad().item<float>(), 2.0F);
  const torch::Tensor loss = own.add(own.a, own.b) * own.c;
  own.b.set_requires_grad(false);
  run_backward_for(loss, {own.b, own.c});
  EXPECT_EQ(own.b.grad().item<float>(), 2.0F) << "has been frozen meanwhile";
  EXPECT_EQ(own.c.grad().item<float>(), 4.0F);
  EXPECT_EQ(own.a.grad().item<float>(), 1.0F);
}

TEST(LineBackward, LeavesAloneWhatHasBeenFrozenMeanwhile) {
  Sums own;
  const torch::Tensor loss = own.add(own.a, own.b);
  own.a.set_requires_grad(false);
  run_backward(loss);
  EXPECT_EQ(own.seen.by_engine, 0);
  EXPECT_FALSE(own.a.grad().defined());
  EXPECT_EQ(own.b.grad().item<float>(), 1.0F);
}

struct Case {
  const char* what;
  std::function<torch::Tensor(Sums&)> make;
  float gradient_of_a = 1.0F;
};

const Case kCases[] = {
    {"a node of another's", [](Sums& own) { return own.add(own.add<Node>(own.a, own.b), own.c); }},
    {"an operation of LibTorch", [](Sums& own) { return own.add(own.a + own.b, own.c); }},
    {"two ways", [](Sums& own) { return own.add(own.add(own.a, own.b), own.add(own.c, torch::zeros({}))); }},
    {"a leaf twice", [](Sums& own) { return own.add(own.add(own.a, own.b), own.a); }, 2.0F},
    {"more than one number", [](Sums& own) { return own.add(own.add(own.a, own.b), torch::zeros({1})); }},
    {"a hook of a leaf",
     [](Sums& own) {
       own.a.register_hook([](const torch::Tensor& gradient) { return gradient * 3; });
       return own.add(own.add(own.a, own.b), own.c);
     },
     3.0F},
    {"a hook of a result",
     [](Sums& own) {
       const torch::Tensor sum = own.add(own.a, own.b);
       sum.register_hook([](const torch::Tensor& gradient) { return gradient * 3; });
       return own.add(sum, own.c);
     },
     3.0F},
};

TEST(LineBackward, LeavesAllElseToLibTorch) {
  for (const Case& each : kCases) {
    Sums own;
    run_backward(each.make(own));
    EXPECT_GT(own.seen.calls, 0) << each.what;
    EXPECT_EQ(own.seen.by_engine, own.seen.calls) << each.what;
    EXPECT_EQ(own.a.grad().sum().item<float>(), each.gradient_of_a) << each.what;
  }
}

TEST(LineBackward, ShowsWhatSomebodyWantsToSee) {
  Sums own;
  const torch::Tensor sum = own.add(own.a, own.b);
  sum.retain_grad();
  run_backward(own.add(sum, own.c));
  EXPECT_EQ(sum.grad().item<float>(), 1.0F);
  {
    const torch::autograd::DetectAnomalyGuard anomaly;
    run_backward(own.add(own.a, own.b));
  }
  int leaves = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction&) {
                                                   return std::unique_ptr<at::ObserverContext>();
                                                 }).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  run_backward(own.add(own.a, own.b));
  at::removeCallback(handle);
  EXPECT_EQ(own.seen.calls, 4);
  EXPECT_EQ(own.seen.by_engine, 4);
  own.c.mutable_grad() = torch::Tensor();
  struct Counts final : torch::autograd::FunctionPostHook {
    explicit Counts(int& given) : count(given) {}
    variable_list operator()(const variable_list& results, const variable_list& /*given*/) override {
      ++count;
      return results;
    }
    int& count;
  };
  const auto end = torch::autograd::impl::grad_accumulator(own.c);
  end->add_post_hook(std::make_unique<Counts>(leaves));
  run_backward(own.add(own.a, own.c));
  EXPECT_EQ(leaves, 1);
}

// A backward pass may be a part of another one, as a checkpointed layer's is.
class NestedBackward final : public Node {
 public:
  explicit NestedBackward(std::function<void()> inner) : inner_(std::move(inner)) {}
  variable_list apply(variable_list&& /*gradients*/) override {
    const at::AutoGradMode with_graph(true);
    inner_();
    return {};
  }

 private:
  std::function<void()> inner_;
};

TEST(LineBackward, IsLibTorchsWithinAnother) {
  Sums own;
  torch::Tensor outer = torch::ones({});
  torch::autograd::set_history(outer,
                               compat::make_grad_fn<NestedBackward>([&] { run_backward(own.add(own.a, own.b)); }));
  outer.backward();
  EXPECT_EQ(own.seen.by_engine, 1);
  EXPECT_EQ(own.a.grad().item<float>(), 1.0F);
}

// A training step's operations, held to LibTorch's pass over them.
TEST(LineBackward, HasTheBitsOfLibTorchs) {
  for (const torch::Dtype dtype : {torch::kFloat, torch::kDouble}) {
    torch::manual_seed(5);
    const auto options = torch::TensorOptions().dtype(dtype);
    const torch::Tensor x = torch::randn({7, 40}, options);
    const torch::Tensor labels = torch::randint(5, {7}, torch::kLong);
    const std::vector<torch::Tensor> parameters = {torch::randn({30, 40}, options), torch::randn({30}, options),
                                                   torch::randn({20, 30}, options), torch::randn({20}, options),
                                                   torch::randn({5, 20}, options),  torch::randn({5}, options)};
    for (const torch::Tensor& parameter : parameters) parameter.requires_grad_();
    const auto loss = [&] {
      torch::Tensor y = x;
      for (std::size_t i = 0; i < 6; i += 2) y = dense_product(y, parameters[i], parameters[i + 1], /*relu=*/i < 4);
      return entropy_of_all_rows(y, labels, 14.0, 1.0).value;
    };
    const auto gradients = [&](const std::function<void(const torch::Tensor&)>& pass) {
      const torch::Tensor once = loss();
      for (const Node* node = once.grad_fn().get(); node != nullptr; node = node->next_edge(0).function.get()) {
        EXPECT_NE(dynamic_cast<const LineNode*>(node), nullptr) << node->name();
      }
      pass(once);
      EXPECT_THROW(pass(once), c10::Error) << "its tensors are given up";
      pass(loss());  // adds
      std::vector<torch::Tensor> made;
      for (const torch::Tensor& parameter : parameters) made.push_back(std::exchange(parameter.mutable_grad(), {}));
      return made;
    };
    const std::vector<torch::Tensor> theirs = gradients([](const torch::Tensor& y) { y.backward(); });
    const std::vector<torch::Tensor> ours = gradients(run_backward);
    for (std::size_t i = 0; i < theirs.size(); ++i) EXPECT_TRUE(ours[i].equal(theirs[i])) << i;
  }
}

}  // namespace
}  // namespace cohort::line_backward_test
