// What is particular to functions that a pipeline calls for one microbatch at a time: what they return, what is
// refused, and what becomes of failures.
#include "cohort/parallel/pipeline_strategy.h"

#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>

#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "cohort/trace.h"
#include "tests/support/errors.h"
#include "wings/pipeline/strategy/pipeline.h"

namespace cohort::pipeline_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

PipelineStrategy two_stages(const PipelineScheduleOptions& schedule = Schedule1F1B{.microbatches = 3},
                            std::chrono::milliseconds timeout = 1h) {
  return PipelineStrategy({.devices = cpu_devices(2), .schedule = schedule, .exchange = {.timeout = timeout}});
}

PerReplica<Example> batch_of(int64_t rows) {
  return PerReplica<Example>({Example{.x = torch::arange(rows).to(torch::kFloat).view({rows, 1})}});
}

torch::nn::Sequential net() {
  return torch::nn::Sequential(torch::nn::Linear(1, 4), torch::nn::Tanh(), std::make_shared<StageMark>(),
                               torch::nn::Linear(4, 1));
}

TEST(PipelineStrategy, PutsTogetherWhatMicrobatchesReturn) {
  const PipelineStrategy strategy = two_stages();
  EXPECT_EQ(strategy.name(), "pipeline");
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
  const auto model = strategy.mirror(net);
  const torch::NoGradGuard no_grad;
  const auto results = strategy.run(
      [&](Replica& replica, const Example& part) {
        std::vector<std::pair<std::string, torch::Tensor>> named = {{"y", model[replica]->forward(part.x)}};
        return std::tuple(part.x.sum(), part.size(), part.x * 2, named, std::string("same"));
      },
      batch_of(7));
  const auto& [sum, count, rows, named, text] = results[0];
  EXPECT_EQ(sum.item<float>(), 21.0f);
  EXPECT_EQ(count, 7);
  EXPECT_TRUE(torch::equal(rows, batch_of(7)[0].x * 2));
  EXPECT_EQ(named.front().first, "y");
  EXPECT_TRUE(torch::allclose(named.front().second, model[std::size_t{0}]->forward(batch_of(7)[0].x)));
  EXPECT_EQ(text, "same");
  std::atomic<int> calls = 0;
  strategy.run([&](const Example&) { ++calls; }, batch_of(2));  // as many as examples
  EXPECT_EQ(calls, 2);
  strategy.run([&](const Example& part) { calls += part.size() == 0 ? 10 : 100; }, batch_of(0));
  EXPECT_EQ(calls, 12);
  EXPECT_EQ(strategy.run([](Replica& replica) { return replica.id() + 5; })[0], 5);
}

TEST(PipelineStrategy, WhatCannotBePutTogetherIsNamed) {
  const PipelineStrategy strategy = two_stages();
  EXPECT_THAT(
      error_of<InvalidArgument>([&] { strategy.run([](const Example&) { return torch::zeros({10}); }, batch_of(6)); }),
      HasSubstr("returned a tensor of shape [10] for microbatch 0 of 2 examples"));
  EXPECT_THAT(
      error_of<InvalidArgument>([&] { strategy.run([](const Example&) { return std::optional(1); }, batch_of(6)); }),
      HasSubstr("optional<int>): return tensors, numbers"));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                strategy.run([](const Example& part) { return std::vector<int>(part.x[0].item<int>() == 0 ? 1 : 2); },
                             batch_of(6));
              }),
              HasSubstr("lists of different lengths"));
}

// A training step of a model by a function, which gets the model's output and the replica.
template <typename Fn>
void step(const PipelineStrategy& strategy, const Fn& fn, int64_t rows = 6) {
  const auto model = strategy.mirror(net);
  const MirroredOptimizer sgd = strategy.optimizer(model, SGD());
  strategy.run(
      [&](Replica& replica, const Example& part) {
        ReplicaOptimizer own = sgd[replica];
        fn(
            replica, part, [&](const torch::Tensor& x) { return model[replica]->forward(x); }, own);
      },
      batch_of(rows));
}

TEST(PipelineStrategy, WhatNeedsTheWholeShareIsRefused) {
  const PipelineStrategy strategy = two_stages();
  const auto refused = [&](const auto& fn) {
    return error_of<Error>([&] {
      step(strategy, [&](Replica& replica, const Example& part, const auto& forward, ReplicaOptimizer& own) {
        fn(replica, forward(part.x), own);
      });
    });
  };
  EXPECT_THAT(refused([](Replica& replica, const torch::Tensor& y, ReplicaOptimizer&) {
                replica.all_reduce(ReduceOp::kSum, y);
              }),
              HasSubstr("all_reduce() needs the replica's whole share"));
  EXPECT_THAT(refused([](Replica&, const torch::Tensor& y, ReplicaOptimizer& own) { own.gradients(y.sum()); }),
              HasSubstr("gradients() needs the operations of the whole model"));
  EXPECT_THAT(refused([](Replica& replica, const torch::Tensor& y, ReplicaOptimizer&) {
                replica.global_mean(y.new_zeros({5}));
              }),
              HasSubstr("got values of shape [5] for 2 examples"));
  EXPECT_THAT(refused([](Replica& replica, const torch::Tensor&, ReplicaOptimizer&) {
                replica.merge_call([](const Strategy&) {});
              }),
              HasSubstr("merge_call needs"));
  EXPECT_THAT(refused([](Replica& replica, const torch::Tensor& y, ReplicaOptimizer& own) {
                own.minimize(replica.global_mean(y));
                own.minimize(replica.global_mean(y));
              }),
              HasSubstr("minimize() was called twice"));
  EXPECT_THAT(refused([](Replica& replica, const torch::Tensor& y, ReplicaOptimizer& own) {
                y.square().sum().backward({}, /*retain_graph=*/true);
                own.minimize(replica.global_mean(y));
              }),
              HasSubstr("a gradient of another backward()"));
}

TEST(PipelineStrategy, WrongCutsAreNamed) {
  const auto trained = [](torch::nn::Sequential (*make)(), const std::vector<std::string>& cut = {}) {
    return error_of<Error>([&] {
      const PipelineStrategy strategy({.devices = cpu_devices(2), .cut = cut});
      const auto model = strategy.mirror(make);
      const MirroredOptimizer sgd = strategy.optimizer(model, SGD());
      strategy.run(
          [&](Replica& replica, const Example& part) {
            sgd[replica].minimize(replica.global_mean(stage_place(model[replica]->forward(part.x), "end")));
          },
          batch_of(4));
    });
  };
  EXPECT_THAT(trained([] { return torch::nn::Sequential(torch::nn::Linear(1, 1)); }),
              AllOf(HasSubstr("come through 1 of the 2 chunks of the schedule when its loss was minimized"),
                    HasSubstr("passed these that are not named: end")));
  EXPECT_THAT(trained([] {
                return torch::nn::Sequential(torch::nn::Linear(1, 1), std::make_shared<StageMark>(),
                                             std::make_shared<StageMark>());
              }),
              HasSubstr("came to the end of chunk 1 of a model, but the schedule has 2 chunks"));
  EXPECT_EQ(trained([] { return torch::nn::Sequential(torch::nn::Linear(1, 1)); }, {"end"}), "no error");
  // The module cuts itself, so that there are as many chunks as the schedule has.
  EXPECT_THAT(
      trained([] { return torch::nn::Sequential(torch::nn::Linear(1, 1), std::make_shared<StageMark>()); }, {"nosuch"}),
      AllOf(HasSubstr("PipelineOptions::cut has \"nosuch\", but microbatch 0 had not come to a place of that name"),
            HasSubstr("passed these that are not named: end")));
  EXPECT_THAT(error_of<InvalidArgument>([] {
                PipelineStrategy({.devices = cpu_devices(2), .cut = {"a", "b"}});
              }),
              HasSubstr("cut has 2 names, wanted at most 1 for the 2 chunks of the schedule 1f1b on 2 stages"));
}

TEST(PipelineStrategy, ValuesThatGoAroundAStageAreNamed) {
  const PipelineStrategy strategy = two_stages();
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                step(strategy, [](Replica& replica, const Example& part, const auto& forward, ReplicaOptimizer& own) {
                  torch::Tensor kept;
                  const torch::Tensor w = torch::ones({1}, torch::requires_grad());
                  const torch::Tensor early = w * part.x;
                  own.minimize(replica.global_mean(forward(part.x) + early));
                });
              }),
              AnyOf(HasSubstr("chunk 1 of the model depends on what an earlier chunk has computed (by "),
                    HasSubstr("chunk 1 of the model depends on a tensor of shape [1]")));
}

TEST(PipelineStrategy, OptionsThatDoNotFitAreNamed) {
  const auto error = [](const PipelineOptions& options) {
    return error_of<Error>([&] { PipelineStrategy strategy(options); });
  };
  EXPECT_THAT(error({.devices = cpu_devices(2), .schedule = ScheduleGPipe{}, .most_alive = 4}),
              HasSubstr("schedule gpipe of 8 microbatches keeps those of 8 on stage 0, and most_alive is 4"));
  EXPECT_THAT(error({.devices = cpu_devices(2), .most_alive = -1}), HasSubstr("most_alive is -1"));
  EXPECT_THAT(error({.devices = cpu_devices(2), .sharding = {.stage = 2}}), HasSubstr("sharding.stage is 2"));
  EXPECT_THAT(error({.mesh = DeviceMesh({2}, {"batch"}, cpu_devices(2))}), HasSubstr("has no axis of stages"));
  EXPECT_THAT(error({.mesh = DeviceMesh({2, 1}, {"stage", "pipeline"}, cpu_devices(2))}),
              HasSubstr("two axes of stages"));
  EXPECT_THAT(error({.mesh = DeviceMesh({2, 1}, {"stage", "model"}, cpu_devices(2))}),
              HasSubstr("the layout cuts no parameter along \"model\" of the mesh"));
  EXPECT_THAT(error({.devices = cpu_devices(2), .schedule = Schedule1F1B{.microbatches = 0}}),
              HasSubstr("0 microbatches"));
}

TEST(PipelineStrategy, AFunctionThatThrowsStopsTheOthersAndItsErrorArrives) {
  const PipelineStrategy strategy = two_stages();
  for (const bool late : {false, true}) {
    for (int thrower = 0; thrower < 3; ++thrower) {
      EXPECT_EQ(error_of<std::runtime_error>([&] {
                  step(strategy,
                       [&](Replica& replica, const Example& part, const auto& forward, ReplicaOptimizer& own) {
                         const bool own_turn = part.x[0].item<int>() == 2 * thrower;
                         if (own_turn && !late) throw std::runtime_error("out of luck");
                         const torch::Tensor y = forward(part.x);
                         if (own_turn) throw std::runtime_error("out of luck");
                         own.minimize(replica.global_mean(y));
                       });
                }),
                "out of luck");
      EXPECT_EQ(strategy.run([](const Example& part) { return part.size(); }, batch_of(5))[0], 5);
    }
  }
}

TEST(PipelineStrategy, AFunctionThatDoesNotComeBackIsNamed) {
  // The function may outlive this test.
  const auto over = std::make_shared<std::atomic<bool>>(false);
  {
    const PipelineStrategy strategy = two_stages(Schedule1F1B{.microbatches = 2}, 200ms);
    EXPECT_THAT(error_of<DeadlineExceeded>([&] {
                  strategy.run(
                      [over](const Example& part) {
                        while (part.x[0].item<int>() == 0 && !*over) std::this_thread::sleep_for(1ms);
                      },
                      batch_of(2));
                }),
                AllOf(HasSubstr("waited 200 ms for"), HasSubstr("of microbatch 0 in chunk")));
    EXPECT_THAT(error_of<FailedPrecondition>([&] { strategy.run([] {}); }), HasSubstr("never came back"));
    *over = true;
  }
}

// The products of a training step, on all threads.
std::atomic<int> products = 0;

int products_of(const PipelineScheduleOptions& schedule) {
  const PipelineStrategy strategy = two_stages(schedule);
  const auto model = strategy.mirror([] {
    return torch::nn::Sequential(torch::nn::Linear(1, 4), std::make_shared<StageMark>(), torch::nn::Linear(4, 4),
                                 torch::nn::Linear(4, 1));
  });
  const MirroredOptimizer sgd = strategy.optimizer(model, SGD());
  products = 0;
  const auto handle = at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                                              const std::string name = function.name();
                                              if (name == "aten::mm" || name == "aten::addmm") ++products;
                                              return std::unique_ptr<at::ObserverContext>();
                                            }).scopes({at::RecordScope::FUNCTION}));
  strategy.run(
      [&](Replica& replica, const Example& part) {
        sgd[replica].minimize(replica.global_mean(model[replica]->forward(part.x)));
      },
      batch_of(6));
  at::removeCallback(handle);
  return products;
}

// The two halves of a backward pass compute nothing twice.
TEST(PipelineStrategy, HalvesOfABackwardHaveTheProductsOfAWhole) {
  const int whole = products_of(Schedule1F1B{.microbatches = 3});
  EXPECT_GE(whole, 3 * (3 + 3 + 2));
  EXPECT_EQ(products_of(ScheduleZeroBubbleH1{.microbatches = 3}), whole);
}

// A function that computes all of its gradients whichever are asked for: those of its second factor come in the first
// half of a backward pass, too.
class Product : public torch::autograd::Function<Product> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight) {
    context->save_for_backward({x, weight});
    return x * weight;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * saved[1], (gradients[0] * saved[0]).sum(0)};
  }
};

struct WeightedImpl : torch::nn::Module {
  WeightedImpl() { weight = register_parameter("weight", torch::full({1}, 2.0)); }
  torch::Tensor forward(const torch::Tensor& x) {
    return Product::apply(next_stage(Product::apply(x, weight)), weight);
  }
  torch::Tensor weight;
};
TORCH_MODULE(Weighted);

TEST(PipelineStrategy, AGradientIsAddedOnceAlthoughBothHalvesComputeIt) {
  for (const PipelineScheduleOptions& schedule : {PipelineScheduleOptions(Schedule1F1B{.microbatches = 3}),
                                                  PipelineScheduleOptions(ScheduleZeroBubbleH1{.microbatches = 3})}) {
    const PipelineStrategy strategy = two_stages(schedule);
    const auto model = strategy.mirror([] { return Weighted(); });
    const MirroredOptimizer sgd = strategy.optimizer(model, SGD({.learning_rate = 0.1}));
    strategy.run(
        [&](Replica& replica, const Example& part) {
          sgd[replica].minimize(replica.global_mean(model[replica]->forward(part.x)));
        },
        batch_of(6));
    // The mean of x w w: its gradient is 2 w mean(x), of the mean 2.5.
    EXPECT_FLOAT_EQ(model[std::size_t{0}]->weight.item<float>(), 2.0f - 0.1f * 2 * 2 * 2.5f);
  }
}

TEST(PipelineStrategy, ATraceHasTheTimeline) {
  const PipelineStrategy strategy = two_stages();
  Trace trace({.file = {}, .close_up = kPipelineStep});
  step(strategy, [](Replica& replica, const Example& part, const auto& forward, ReplicaOptimizer& own) {
    own.minimize(replica.global_mean(forward(part.x)));
  });
  const TraceSummary summary = trace.finish();
  ASSERT_TRUE(summary.seconds_of.contains("replica 0, stage 1"));
  EXPECT_GT(summary.seconds_of.at("replica 0, stage 1").at("compute"), 0.0);
  ASSERT_TRUE(summary.close_up.contains("replica 0, stage 1"));
  std::set<std::string> actions;
  for (const TracedSpan& span : summary.close_up.at("replica 0, stage 1")) actions.insert(span.name);
  for (const char* each : {"forward 0", "backward 2"}) EXPECT_TRUE(actions.contains(each)) << each;
}

// A batch norm before and behind a cut.
struct NormTwiceImpl : torch::nn::Module {
  explicit NormTwiceImpl(bool two = true) {
    norm = register_module("norm", torch::nn::BatchNorm1d(1));
    other = register_module("other", torch::nn::BatchNorm1d(1));
    last = two ? norm : other;
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(next_stage(norm(norm(x)))); }
  torch::nn::BatchNorm1d norm{nullptr}, other{nullptr}, last{nullptr};
};
TORCH_MODULE(NormTwice);

TEST(PipelineStrategy, ABatchNormOfTwoStagesIsNamed) {
  const auto error = [](bool two) {
    return error_of<FailedPrecondition>([&] {
      const PipelineStrategy strategy = two_stages(Schedule1F1B{.microbatches = 1});
      const auto model = strategy.mirror([two] { return NormTwice(two); });
      const MirroredOptimizer sgd = strategy.optimizer(model, SGD());
      strategy.run(
          [&](Replica& replica, const Example& part) {
            sgd[replica].minimize(replica.global_mean(model[replica]->forward(part.x)));
          },
          batch_of(7));
    });
  };
  EXPECT_EQ(error(false), "no error");
  EXPECT_THAT(error(true), HasSubstr("is changed in several chunks of the model"));
  EXPECT_THAT(error(true), HasSubstr("norm."));
}

}  // namespace
}  // namespace cohort::pipeline_test
