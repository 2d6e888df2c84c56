// Own loops over stages that lie with the workers of a cluster: their results, and what is refused there.
#include <atomic>

#include "base/access.h"
#include "strategy/core.h"
#include "tests/equivalence/pipeline_workers.h"
#include "tests/support/errors.h"

namespace cohort::equivalence::pipeline_own_loops_test {
namespace {

using namespace pipeline_workers;

// Own loops, with LibTorch's modules: two values from a stage to the next, a weight of the first stage that the last
// one uses, a batch norm, and a layer that does not learn.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    embedding = register_parameter("embedding", torch::randn({6, 8}, torch::kDouble) * 0.3);
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    middle = register_module("middle", torch::nn::Linear(8, 8));
    frozen = register_parameter("frozen", torch::randn({8, 8}, torch::kDouble) * 0.3, /*requires_grad=*/false);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    std::vector<torch::Tensor> both = next_stage({torch::tanh(x.matmul(embedding)), x.matmul(embedding)});
    torch::Tensor y = torch::tanh(middle->forward(norm->forward(both[0]))) + both[1];
    y = stage_place(y.matmul(frozen), "head");
    return y.matmul(embedding.t());
  }
  torch::Tensor embedding, frozen;
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear middle{nullptr};
};
TORCH_MODULE(Net);

struct LinearsImpl : torch::nn::Module {
  LinearsImpl() {
    first = register_parameter("first", torch::full({6, 3}, 0.5, torch::kDouble));
    second = register_parameter("second", torch::full({3, 2}, 0.5, torch::kDouble));
  }
  torch::Tensor forward(const torch::Tensor& x) { return next_stage(x.matmul(first)).matmul(second); }
  torch::Tensor first, second;
};
TORCH_MODULE(Linears);

struct OwnLoop {
  std::vector<double> losses;
  std::vector<torch::Tensor> outputs;
  NamedTensors state;
};

OwnLoop own_loop(const Strategy& strategy) {
  const auto net = strategy.mirror([] { return Net(); });
  NamedTensors begin;
  for (const auto& [name, value] : net.state()) {
    const at::Generator own = mesh_runs::generator(name.size());
    begin.emplace_back(name, value.is_floating_point() ? torch::rand(value.sizes(), own, torch::kDouble) : value);
  }
  net.load_state(begin);
  const MirroredOptimizer rule = strategy.optimizer(net, Adam({.learning_rate = 0.02}));
  OwnLoop result;
  for (int step = 0; step < 6; ++step) {
    const at::Generator own = mesh_runs::generator(static_cast<uint64_t>(100 + step));
    const torch::Tensor x = torch::randn({step % 3 == 2 ? 7 : 12, 6}, own, torch::kDouble);
    const auto results = strategy.run(
        [&](Replica& replica, const Example& part) {
          const torch::Tensor y = net[replica]->forward(part.x);
          const torch::Tensor loss = replica.global_mean((y - part.x).square());
          rule[replica].minimize(loss);
          return std::pair(loss, y);
        },
        PerReplica<Example>({Example{.x = x}}));
    result.losses.push_back(results[0].first.item<double>());
    result.outputs.push_back(results[0].second);
  }
  net.synchronize_buffers();
  for (const auto& [name, value] : net.state()) result.state.emplace_back(name, value.to(torch::kDouble));
  return result;
}

TEST(PipelineOverWorkersOwnLoops, AnOwnLoopHasTheSameResultsOnAllWorkers) {
  const OwnLoop wanted = own_loop(
      PipelineStrategy({.devices = cpu_devices(3), .schedule = Schedule1F1B{.microbatches = 3}, .cut = {"head"}}));
  with_stages({.workers = 3, .stages = 3}, Schedule1F1B{.microbatches = 3},
              [&](const MultiWorkerPipelineStrategy& strategy) {
                const OwnLoop got = own_loop(strategy);
                for (std::size_t step = 0; step < wanted.losses.size(); ++step) {
                  EXPECT_NEAR(got.losses[step], wanted.losses[step], kClose);
                  EXPECT_LT(gap_between(got.outputs[step], wanted.outputs[step]), kClose);
                }
                expect_same(got.state, wanted.state);
              },
              {"head"});
}

// A weight that both stages use, and gradients of which factors of low rank travel between the lines.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    middle = register_parameter("middle", torch::cos(torch::arange(256.0, torch::kDouble)).view({16, 16}));
    embedding = register_parameter("embedding", torch::sin(torch::arange(192.0, torch::kDouble)).view({12, 16}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = next_stage(torch::tanh(x.matmul(embedding) * 0.2));
    return torch::tanh(y.matmul(middle) * 0.2).matmul(embedding.t());
  }
  torch::Tensor embedding, middle;
};
TORCH_MODULE(Tied);

struct TiedTraining {
  explicit TiedTraining(const Strategy& own)
      : strategy(own), net(own.mirror([] { return Tied(); })), rule(own.optimizer(net, SGD({.learning_rate = 0.05}))) {}

  // Replicas in sync from `first` on get examples of their own.
  void steps(int from, int to, int first) const {
    for (int step = from; step < to; ++step) {
      std::vector<Example> shares;
      for (int i = 0; i < strategy.num_local_replicas(); ++i) {
        const at::Generator own = mesh_runs::generator(static_cast<uint64_t>(100 * step + first + i));
        shares.push_back({.x = torch::randn({4, 12}, own, torch::kDouble)});
      }
      strategy.run(
          [&](Replica& replica, const Example& part) {
            const torch::Tensor y = net[replica]->forward(part.x);
            rule[replica].minimize((y - part.x).square().sum() / 96.0);
          },
          PerReplica<Example>(std::move(shares)));
    }
  }

  Strategy strategy;
  Mirrored<Tied> net;
  MirroredOptimizer rule;
};

TEST(PipelineOverWorkersOwnLoops, FactorsOfLowRankAreThoseOfReplicasAndGoOn) {
  ExchangeOptions exchange{.gradient_compression = "power_sgd",
                           .power_sgd = {.matrix_approximation_rank = 2, .start_power_sgd_iter = 1},
                           .threads_per_replica = 1};
  const PipelineOptions options{
      .mesh = mesh_of({.workers = 4, .batch = 2}), .schedule = Schedule1F1B{.microbatches = 2}, .exchange = exchange};
  exchange.cross_device_ops = "reduction_to_one_device";
  const TiedTraining replicas(MirroredStrategy({.devices = cpu_devices(2), .exchange = exchange}));
  replicas.steps(0, 6, 0);
  std::vector<torch::Tensor> tied(4);
  with_stages(
      4, [&](int /*rank*/) { return options; },
      [&](const MultiWorkerPipelineStrategy& strategy) {
        const auto rank = static_cast<std::size_t>(strategy.worker_rank());
        const int line = Access::core(strategy)->pipelines()[rank];
        const TiedTraining whole(strategy), second(strategy);
        whole.steps(0, 3, line);
        second.net.load_state(whole.net.state());
        second.rule.load_state(whole.rule.state());
        second.rule.load_accumulated(whole.rule.accumulated());
        whole.steps(3, 6, line);
        second.steps(3, 6, line);
        expect_same(whole.net.state(), replicas.net.state());
        for (const auto& [name, value] : whole.net.state()) {
          for (const auto& [other, again] : second.net.state())
            EXPECT_TRUE(name != other || torch::equal(value, again));
        }
        tied[rank] = whole.net[0]->embedding.detach().clone();
      });
  for (const torch::Tensor& each : tied) EXPECT_TRUE(torch::equal(each, tied[0]));
}

// A batch with one example is one microbatch, whose results all workers have, too.
TEST(PipelineOverWorkersOwnLoops, ASingleMicrobatchHasItsResultsOnAllWorkers) {
  with_stages({}, Schedule1F1B{.microbatches = 3}, [](const MultiWorkerPipelineStrategy& strategy) {
    const auto net = strategy.mirror([] { return Linears(); });
    const torch::Tensor x = torch::ones({1, 6}, torch::kDouble);
    const auto results = strategy.run(
        [&](Replica& replica, const Example& part) {
          const torch::NoGradGuard no_grad;
          const torch::Tensor y = net[replica]->forward(part.x);
          return std::tuple(NamedTensors{{"y", y}, {"none", torch::Tensor()}}, y.sum(), y.sum({0}), part.size());
        },
        PerReplica<Example>({Example{.x = x}}));
    const auto& [named, sum, columns, rows] = results[0];
    const torch::Tensor wanted = torch::full({1, 2}, 6 * 0.5 * 3 * 0.5, torch::kDouble);
    EXPECT_LT(gap_between(named[0].second, wanted), kClose);
    EXPECT_FALSE(named[1].second.defined());
    EXPECT_NEAR(sum.item<double>(), wanted.sum().item<double>(), kClose);
    EXPECT_LT(gap_between(columns, wanted[0]), kClose);
    EXPECT_EQ(rows, 1);
    EXPECT_LT(gap_between(strategy.reduce(ReduceOp::kSum, PerReplica<torch::Tensor>({columns})), wanted[0]), kClose);
  });
}

template <typename Kind>
void expect_refused(const std::string& part, const std::function<void()>& fn) {
  const std::string message = testing::error_of<Kind>(fn);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(PipelineOverWorkersOwnLoops, WhatCannotBeIsNamed) {
  const auto none = [](const MultiWorkerPipelineStrategy& /*strategy*/) {};
  expect_refused<InvalidArgument>("mesh is not set", [] { MultiWorkerPipelineStrategy({.devices = cpu_devices(2)}); });
  expect_refused<InvalidArgument>("the workers differ in pipeline: worker 0 has \"1f1b of 3", [&] {
    with_stages(
        2,
        [](int rank) {
          return PipelineOptions{.mesh = mesh_of({}), .schedule = Schedule1F1B{.microbatches = 3 + rank}};
        },
        none);
  });
  expect_refused<InvalidArgument>("the workers differ in exchange: worker 0 has \"1 packs", [&] {
    with_stages(
        2, [](int rank) { return PipelineOptions{.mesh = mesh_of({}), .exchange = {.num_packs = 1 + rank}}; }, none);
  });
  expect_refused<Unimplemented>("global_mean: a pipeline beside other workers does not ask", [&] {
    with_stages({.workers = 4, .batch = 2}, Schedule1F1B{.microbatches = 2}, [](const auto& strategy) {
      strategy.run([](Replica& replica, const Example& part) { return replica.global_mean(part.x); },
                   PerReplica<Example>({Example{.x = torch::ones({4, 2})}}));
    });
  });
  expect_refused<InvalidArgument>("has other stages of the mesh", [&] {
    with_stages({.workers = 2, .devices = 3, .batch = 2, .stages = 3}, Schedule1F1B{}, none);
  });
}

// A batch norm that the stages of two workers use.
struct NormTwiceImpl : torch::nn::Module {
  NormTwiceImpl() : norm(register_module("norm", torch::nn::BatchNorm1d(6))) { to(torch::kDouble); }
  torch::Tensor forward(const torch::Tensor& x) { return norm(next_stage(norm(x))); }
  torch::nn::BatchNorm1d norm;
};
TORCH_MODULE(NormTwice);

TEST(PipelineOverWorkersOwnLoops, ABatchNormOfTwoStagesIsNamed) {
  std::atomic<int> named = 0;
  with_stages({}, Schedule1F1B{.microbatches = 3}, [&](const MultiWorkerPipelineStrategy& strategy) {
    const auto net = strategy.mirror([] { return NormTwice(); });
    const MirroredOptimizer rule = strategy.optimizer(net, SGD());
    const std::string error = testing::error_of<FailedPrecondition>([&] {
      strategy.run(
          [&](Replica& replica, const Example& part) {
            rule[replica].minimize(replica.global_mean(net[replica]->forward(part.x).square()));
          },
          PerReplica<Example>({Example{.x = torch::ones({6, 6}, torch::kDouble)}}));
    });
    if (error.find("[pipeline] norm.") != std::string::npos) ++named;
  });
  EXPECT_EQ(named, 2);
}

// The first worker cannot know a loss that the last one computes; the last one hears of it.
TEST(PipelineOverWorkersOwnLoops, AValueOfAnotherWorkerIsNamed) {
  expect_refused<Unimplemented>("_local_scalar_dense", [] {
    with_stages({}, Schedule1F1B{.microbatches = 3}, [](const MultiWorkerPipelineStrategy& strategy) {
      const auto net = strategy.mirror([] { return Net(); });
      strategy.run(
          [&](Replica& replica, const Example& part) {
            const torch::NoGradGuard no_grad;
            return net[replica]->forward(part.x).sum().item<double>();
          },
          PerReplica<Example>({Example{.x = torch::ones({6, 6}, torch::kDouble)}}));
    });
  });
}

// A part of the loss that layers of several stages add up in place is lost on the way, and so it is refused.
TEST(PipelineOverWorkersOwnLoops, ASumInPlaceOverStagesIsNamed) {
  std::string message;
  with_stages({}, Schedule1F1B{.microbatches = 3}, [&](const MultiWorkerPipelineStrategy& strategy) {
    const auto net = strategy.mirror([] { return Net(); });
    const MirroredOptimizer rule = strategy.optimizer(net, SGD());
    const auto step = [&](Replica& replica, const Example& part) {
      torch::Tensor more = torch::zeros({}, torch::kDouble);
      const torch::Tensor x = part.x.matmul(net[replica]->embedding);
      more += x.square().mean();
      const torch::Tensor y = net[replica]->middle->forward(next_stage(x));
      rule[replica].minimize(replica.global_mean(y.square()) + more);
    };
    const auto run = [&] {
      strategy.run(step, PerReplica<Example>({Example{.x = torch::ones({6, 6}, torch::kDouble)}}));
    };
    const bool is_last = strategy.worker_rank() == 1;
    is_last ? message = testing::error_of<FailedPrecondition>(run) : testing::error_of<Unavailable>(run);
  });
  EXPECT_NE(message.find("was given a tensor of [] that another process of the pipeline has"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace cohort::equivalence::pipeline_own_loops_test
