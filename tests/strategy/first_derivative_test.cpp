// Messages between replicas have no history: gradients of gradients through them are refused, as they would be wrong.
#include "base/first_derivative.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <utility>
#include <vector>

#include "cohort/cohort.h"
#include "strategy/sync_batch_norm.h"
#include "tests/support/errors.h"

namespace cohort::first_derivative_test {
namespace {

using torch::Tensor;

TEST(FirstDerivative, IsAllThatGoesThroughReplicas) {
  using Fn = std::function<Tensor(Replica&, const Tensor&)>;
  const std::vector<std::pair<const char*, Fn>> cases{
      {"all_reduce()", [](Replica& replica, const Tensor& x) { return replica.all_reduce(ReduceOp::kSum, x); }},
      {"all_gather()", [](Replica& replica, const Tensor& x) { return replica.all_gather(x); }},
      {"a batch norm over several replicas",
       [](Replica& replica, const Tensor& x) { return sync_batch_norm(x, {}, {&replica.communicator()}); }},
      {"enter_axis()", [](Replica&, const Tensor& x) { return enter_axis(x, "sequence"); }},
      {"sum_along()", [](Replica&, const Tensor& x) { return sum_along(x, "sequence"); }},
      {"gather_along()", [](Replica&, const Tensor& x) { return gather_along(x, "sequence", 0); }},
      {"part_along()", [](Replica&, const Tensor& x) { return part_along(x, "sequence", 0); }},
  };
  const MeshStrategy strategy(DeviceMesh({2, 2}, {"batch", "sequence"}, cpu_devices(4)));
  for (const auto& [what, fn] : cases) {
    const auto twice = [&, fn = fn] {
      strategy.run([&](Replica& replica) {
        const Tensor x = torch::arange(8, torch::kDouble).view({2, 4}).requires_grad_();
        const Tensor y = fn(replica, x).square().sum();
        ASSERT_TRUE(torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true).front().defined());
        (void)torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
      });
    };
    testing::expect_error<Unimplemented>(twice,
                                         c10::str("second derivatives (create_graph) are not computed through ", what));
  }
}

}  // namespace
}  // namespace cohort::first_derivative_test
