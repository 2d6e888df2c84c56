#include "cohort/variable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/error.h"
#include "cohort/strategy.h"
#include "tests/support/errors.h"

namespace cohort::variable_test {
namespace {

using testing::error_of;
using Sync = VariableSynchronization;
using Agg = VariableAggregation;
using ::testing::HasSubstr;

class OnWrite : public ::testing::TestWithParam<bool> {
 protected:
  Strategy strategy() const {
    if (GetParam()) return CentralStorageStrategy({.compute_devices = cpu_devices(3)});
    return MirroredStrategy({.devices = cpu_devices(3)});
  }
};

TEST_P(OnWrite, AnAssignmentFromTheReplicasIsAggregated) {
  const std::vector<std::pair<Agg, double>> cases = {
      {Agg::kSum, 6.0}, {Agg::kMean, 2.0}, {Agg::kOnlyFirstReplica, 1.0}};
  for (const auto& [aggregation, expected] : cases) {
    const Strategy s = strategy();
    const Variable v = s.variable(torch::zeros({2}), {.aggregation = aggregation});
    s.run([&, expected = expected](Replica& replica) {
      v.assign(torch::full({2}, replica.id() + 1.0));
      EXPECT_EQ(v.read()[0].item<double>(), expected);
      v.assign_add(torch::full({2}, replica.id() + 1.0));
    });
    EXPECT_TRUE(torch::equal(v.read(), torch::full({2}, 2 * expected)));
    for (const auto& component : v.components()) EXPECT_EQ(component[1].item<double>(), 2 * expected);
    v.assign_sub(torch::ones({2}));
    EXPECT_EQ(v.read()[0].item<double>(), 2 * expected - 1);
  }
}

// As in TensorFlow 2.21.
TEST(OnWriteOfOnesOwn, WithoutAnAggregationEachReplicaWritesItsOwnComponent) {
  const MirroredStrategy s({.devices = cpu_devices(3)});
  const Variable v = s.variable(torch::zeros({1}));
  s.run([&](Replica& replica) {
    v.assign(torch::full({1}, replica.id() + 1.0));
    if (replica.id() != 1) v.assign_add(torch::ones({1}));
    if (replica.id() == 2) v.assign_sub(torch::full({1}, 3.0));
  });
  EXPECT_EQ(v.components()[0].item<double>(), 2.0);
  EXPECT_EQ(v.components()[1].item<double>(), 2.0);
  EXPECT_EQ(v.components()[2].item<double>(), 1.0);
  EXPECT_EQ(v.read().item<double>(), 2.0) << "across replicas the first component is the value";
}

TEST(OnWriteTogether, WithoutAnAggregationItIsRefused) {
  const CentralStorageStrategy s({.compute_devices = cpu_devices(3)});
  const Variable v = s.variable(torch::zeros({1}), {.name = "counter"});
  EXPECT_THAT(error_of<InvalidArgument>([&] { s.run([&](Replica&) { v.assign_add(torch::ones({1})); }); }),
              HasSubstr("counter: assign_add from the replicas of"));
  v.assign(torch::ones({1}));
  EXPECT_EQ(v.read().item<double>(), 1.0);
}

TEST_P(OnWrite, ReadingAcrossReplicasIsACopyAndInsideAnAlias) {
  const Strategy s = strategy();
  const Variable v = s.variable(torch::ones({1}));
  v.read().zero_();
  EXPECT_EQ(v.read().item<double>(), 1.0);
  s.run([&](Replica& replica) { EXPECT_TRUE(v.read().is_alias_of(v.components()[replica])); });
  EXPECT_TRUE(v.components()[0].requires_grad());
  int seen = 0;
  v.update([&](torch::Tensor& component) {
    component.fill_(4.0);
    ++seen;
  });
  EXPECT_EQ(seen, GetParam() ? 1 : 3);
  EXPECT_EQ(v.read().item<double>(), 4.0);
}

INSTANTIATE_TEST_SUITE_P(Strategies, OnWrite, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "central" : "mirrored"; });

TEST(OnRead, ReplicasWriteTheirOwnAndReadingAggregates) {
  const MirroredStrategy s({.devices = cpu_devices(3)});
  const auto make = [&](Agg aggregation) {
    return s.variable(torch::zeros({1}), {.synchronization = Sync::kOnRead, .aggregation = aggregation});
  };
  const Variable sum = make(Agg::kSum);
  const Variable mean = make(Agg::kMean);
  const Variable first = make(Agg::kOnlyFirstReplica);
  const Variable none = make(Agg::kNone);
  s.run([&](Replica& replica) {
    for (const Variable* v : {&sum, &mean, &first, &none}) v->assign_add(torch::full({1}, replica.id() + 1.0));
  });
  EXPECT_EQ(sum.read().item<double>(), 6.0);
  EXPECT_EQ(mean.read().item<double>(), 2.0);
  EXPECT_EQ(first.read().item<double>(), 1.0);
  EXPECT_THROW(none.read(), FailedPrecondition);
  EXPECT_FALSE(sum.components()[0].requires_grad());

  sum.assign(torch::full({1}, 9.0));
  EXPECT_EQ(sum.components()[2].item<double>(), 3.0);
  EXPECT_EQ(sum.read().item<double>(), 9.0);
  mean.assign(torch::full({1}, 9.0));
  EXPECT_EQ(mean.read().item<double>(), 9.0);
  EXPECT_THROW(sum.assign_add(torch::ones({1})), InvalidArgument);
  EXPECT_THROW(sum.assign_sub(torch::ones({1})), InvalidArgument);
  mean.assign_add(torch::ones({1}));
  EXPECT_EQ(mean.read().item<double>(), 10.0);
}

// As in TensorFlow 2.21: each replica has gradients of its own.
TEST(OnRead, MayBeTrainable) {
  const MirroredStrategy s({.devices = cpu_devices(2)});
  const Variable v = s.variable(torch::ones({1}), {.synchronization = Sync::kOnRead, .trainable = true});
  s.run([&](Replica& replica) { (v.read() * (replica.id() + 1.0)).sum().backward(); });
  EXPECT_EQ(v.components()[0].grad().item<double>(), 1.0);
  EXPECT_EQ(v.components()[1].grad().item<double>(), 2.0);
}

TEST(Variable, WrongOptionsAndStrangersAreRefused) {
  const MirroredStrategy s({.devices = cpu_devices(2)});
  EXPECT_THROW(s.variable(torch::zeros({1}), {.synchronization = Sync::kNone}), InvalidArgument);
  const MirroredStrategy other({.devices = cpu_devices(2)});
  const Variable v = s.variable(torch::zeros({1}));
  EXPECT_TRUE(s.owns(v));
  EXPECT_FALSE(other.owns(v));
  EXPECT_FALSE(s.owns(Variable()));
  EXPECT_THROW(other.run([&](Replica&) { v.read(); }), FailedPrecondition);
}

}  // namespace
}  // namespace cohort::variable_test
