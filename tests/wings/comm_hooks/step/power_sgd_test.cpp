// Gradients of which factors of low rank travel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/access.h"
#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "cohort/parallel/mesh_strategy.h"
#include "strategy/core.h"
#include "strategy/worker_group.h"
#include "tests/support/errors.h"
#include "tests/support/workers.h"

namespace cohort::power_sgd_test {
namespace {

using testing::expect_error;
using ::testing::HasSubstr;
using testing::with_workers;
using testing::WorkersOptions;

using Shapes = std::vector<std::vector<int64_t>>;
using Tensors = std::vector<torch::Tensor>;

// A matrix, a vector, a filter of 6 x 36, and a matrix that is too small to be approximated.
const Shapes kShapes = {{24, 40}, {40}, {6, 4, 3, 3}, {3, 3}};
constexpr std::size_t kMatrix = 0;
constexpr std::size_t kFilter = 2;

// Parameters that begin as zeros.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(torch::ScalarType dtype) {
    for (const auto& shape : kShapes)
      register_parameter("p" + std::to_string(parameters().size()), torch::zeros(shape, dtype));
  }
};
TORCH_MODULE(Net);

torch::Tensor drawn(uint64_t seed, const std::vector<int64_t>& shape) {
  return torch::randn(shape, at::detail::createCPUGenerator(seed), torch::kDouble);
}

// Gradients of full rank, which are others on every replica and in every step.
Tensors any_gradients(int replica, int step) {
  Tensors list;
  for (std::size_t i = 0; i < kShapes.size(); ++i) list.push_back(drawn(1000 * step + 10 * replica + i, kShapes[i]));
  return list;
}

// Gradients whose sum over the replicas has the given rank.
Tensors low_gradients(int replica, int step, int64_t rank) {
  Tensors list = any_gradients(replica, step);
  for (const std::size_t i : {kMatrix, kFilter}) {
    const int64_t rows = kShapes[i][0];
    const int64_t columns = list[i].numel() / rows;
    const torch::Tensor common = drawn(77 + step, {rank, columns});
    list[i] = drawn(500 + 10 * replica + i, {rows, rank}).mm(common).view(kShapes[i]);
  }
  return list;
}

// A training of one worker, or of a process.
struct Training {
  explicit Training(const Strategy& own, torch::ScalarType dtype = torch::kDouble)
      : strategy(own),
        net(own.mirror([&] { return Net(dtype); })),
        sgd(own.optimizer(net, SGD({.learning_rate = 1}))) {}

  // Takes a step down the gradients and returns the sums by which it went.
  Tensors step(const std::function<Tensors(int replica)>& gradients) const {
    const Tensors before = parameters();
    strategy.run([&](Replica& replica) {
      Tensors own = gradients(replica.id());
      for (torch::Tensor& each : own) each = each.to(before[0].scalar_type());
      sgd[replica].apply_gradients(std::move(own));
    });
    Tensors sums = parameters();
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = before[i] - sums[i];
    return sums;
  }
  Tensors parameters() const {
    Tensors list;
    for (const auto& parameter : net.copies().back()->parameters()) list.push_back(parameter.detach().clone());
    return list;
  }

  Strategy strategy;
  Mirrored<Net> net;
  MirroredOptimizer sgd;
};

ExchangeOptions power_sgd(const PowerSgdOptions& options) {
  ExchangeOptions exchange = WorkersOptions().exchange;
  exchange.gradient_compression = "power_sgd";
  exchange.power_sgd = options;
  return exchange;
}

Tensors total(int parties, const std::function<Tensors(int replica)>& gradients) {
  Tensors sums = gradients(0);
  for (int r = 1; r < parties; ++r) {
    const Tensors other = gradients(r);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = sums[i] + other[i];
  }
  return sums;
}

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(PowerSgd, ASumOfSmallRankIsExact) {
  for (const bool feedback : {false, true}) {
    for (const bool warm : {false, true}) {
      const WorkersOptions options{.workers = 3,
                                   .exchange = power_sgd({.matrix_approximation_rank = 2,
                                                          .start_power_sgd_iter = 0,
                                                          .use_error_feedback = feedback,
                                                          .warm_start = warm})};
      with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
        const Training training(strategy);
        for (int step = 0; step < 3; ++step) {
          const auto gradients = [&](int replica) { return low_gradients(replica, step, 2); };
          const Tensors sums = training.step(gradients);
          const Tensors wanted = total(3, gradients);
          for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_LT(distance(sums[i], wanted[i]), 1e-9) << i;
        }
      });
    }
  }
}

// The sums by which steps were taken and what the workers keep are together all gradients that there were.
TEST(PowerSgd, WhatASumLosesIsKept) {
  std::vector<Tensors> kept(3);
  Tensors moved;
  const WorkersOptions options{.workers = 3, .exchange = power_sgd({.start_power_sgd_iter = 0})};
  with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    const Training training(strategy);
    for (int step = 0; step < 4; ++step) training.step([&](int replica) { return any_gradients(replica, step); });
    kept[static_cast<std::size_t>(strategy.worker_rank())] = training.sgd.accumulated();
    if (strategy.worker_rank() == 0) moved = training.parameters();
  });
  Tensors all = total(3, [](int replica) { return any_gradients(replica, 0); });
  for (int step = 1; step < 4; ++step) {
    const Tensors more = total(3, [&](int replica) { return any_gradients(replica, step); });
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = all[i] + more[i];
  }
  ASSERT_EQ(kept[0].size(), 2 * kShapes.size()) << "a factor and an error of each parameter";
  const auto lost = [&](std::size_t at) { return kept[0][2 * at + 1] + kept[1][2 * at + 1] + kept[2][2 * at + 1]; };
  EXPECT_GT(lost(kMatrix).abs().max().item<double>(), 0.1);
  EXPECT_LT(distance(lost(kMatrix) - moved[kMatrix], all[kMatrix]), 1e-9);
  EXPECT_LT(distance(lost(kFilter).view(kShapes[kFilter]) - moved[kFilter], all[kFilter]), 1e-9);
  for (const std::size_t exact : {1, 3}) {
    EXPECT_EQ(lost(exact).numel(), 0);
    EXPECT_LT(distance(-moved[exact], all[exact]), 1e-9) << "travels as it is";
  }
}

// The paper's algorithm with LAPACK's QR, from the state after the first step on.
TEST(PowerSgd, FollowsThePapersAlgorithm) {
  std::vector<Tensors> begin(2);
  std::vector<Tensors> sums(2);
  const WorkersOptions options{.workers = 2,
                               .exchange = power_sgd({.matrix_approximation_rank = 3, .start_power_sgd_iter = 0})};
  with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    const auto me = static_cast<std::size_t>(strategy.worker_rank());
    const Training training(strategy);
    training.step([&](int replica) { return any_gradients(replica, 0); });
    begin[me] = training.sgd.accumulated();
    for (int step = 1; step < 5; ++step) {
      const Tensors own = training.step([&](int replica) { return any_gradients(replica, step); });
      sums[me].push_back(own[kMatrix]);
    }
  });
  torch::Tensor second = begin[0][0];
  EXPECT_TRUE(torch::equal(second, begin[1][0]));
  Tensors errors = {begin[0][1], begin[1][1]};
  for (int step = 1; step < 5; ++step) {
    Tensors own;
    for (int worker = 0; worker < 2; ++worker) {
      own.push_back(any_gradients(worker, step)[kMatrix] + errors[static_cast<std::size_t>(worker)]);
    }
    const torch::Tensor first = std::get<0>(torch::linalg_qr((own[0] + own[1]).mm(second)));
    second = (own[0] + own[1]).t().mm(first);
    const torch::Tensor sum = first.mm(second.t());
    for (std::size_t w = 0; w < 2; ++w) {
      EXPECT_LT(distance(sums[w][static_cast<std::size_t>(step - 1)], sum), 1e-9) << step;
      errors[w] = own[w] - sum / 2;
    }
  }
}

// A worker of two replicas is one party: its replicas are added up in memory.
TEST(PowerSgd, AllWorkersTakeTheSameBits) {
  std::array<Tensors, 2> results;
  const WorkersOptions options{.workers = 2, .replicas = 2, .exchange = power_sgd({.start_power_sgd_iter = 2})};
  with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    const Training training(strategy, torch::kFloat);
    for (int step = 0; step < 4; ++step) {
      const auto gradients = [&](int replica) { return any_gradients(replica, step); };
      const Tensors sums = training.step(gradients);
      const Tensors exact = total(4, gradients);
      EXPECT_EQ(distance(sums[kMatrix], exact[kMatrix]) < 1e-4, step < 2) << "the first two travel as they are";
    }
    results[static_cast<std::size_t>(strategy.worker_rank())] = training.parameters();
  });
  for (std::size_t i = 0; i < kShapes.size(); ++i) EXPECT_TRUE(torch::equal(results[0][i], results[1][i])) << i;
}

// 49 elements that are not approximated and 24 + 6 of the first factors, then 40 + 36 of the second ones, for 1225.
TEST(PowerSgd, SendsFactors) {
  const WorkersOptions options{.workers = 2, .exchange = power_sgd({.start_power_sgd_iter = 0})};
  with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    const Training training(strategy);
    training.step([](int replica) { return any_gradients(replica, 0); });
    const std::string calls = Access::core(strategy)->workers().gradients().recorder().dump();
    EXPECT_THAT(calls, HasSubstr("all_reduce SUM of Double[79]"));
    EXPECT_THAT(calls, HasSubstr("all_reduce SUM of Double[76]"));
    EXPECT_EQ(calls.find("all_reduce SUM", calls.find("Double[76]")), std::string::npos) << calls;
  });
}

// A direction that was not there when the factors were made is found.
TEST(PowerSgd, GradientsThatWereZeroAreFound) {
  const WorkersOptions options{.workers = 2, .exchange = power_sgd({.start_power_sgd_iter = 0})};
  with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    const Training training(strategy);
    const auto zeros = [](int) {
      Tensors list;
      for (const auto& shape : kShapes) list.push_back(torch::zeros(shape, torch::kDouble));
      return list;
    };
    const auto gradients = [](int replica) { return low_gradients(replica, 0, 1); };
    for (const torch::Tensor& sum : training.step(zeros)) EXPECT_EQ(sum.abs().max().item<double>(), 0.0);
    training.step(gradients);
    training.step(zeros);  // what was lost follows
    const Tensors wanted = total(2, gradients);
    const Tensors moved = training.parameters();
    for (std::size_t i = 0; i < moved.size(); ++i) EXPECT_LT(distance(-moved[i], wanted[i]), 1e-9) << i;
  });
}

// Products of gradients and factors stay in the range of float32. What is infinite arrives, and nobody waits.
TEST(PowerSgd, GradientsOfAnySizeAreSummed) {
  const WorkersOptions options{.workers = 2,
                               .exchange = power_sgd({.matrix_approximation_rank = 2, .start_power_sgd_iter = 0})};
  with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    for (const double size : {1e-25, 1.0, 1e25, std::numeric_limits<double>::infinity()}) {
      const Training training(strategy, torch::kFloat);
      // Two directions, of which one is 10^12 times as large.
      const torch::Tensor both =
          drawn(1, {24, 2}).mm(torch::tensor({{1.0, 0.0}, {0.0, 1e-12}}, torch::kDouble)).mm(drawn(2, {2, 40}));
      const auto gradients = [&](int /*replica*/) {
        Tensors list = any_gradients(0, 0);
        list[kMatrix] = both * size;
        return list;
      };
      training.step(gradients);
      const torch::Tensor sum = training.step(gradients)[kMatrix].to(torch::kDouble);
      if (std::isinf(size)) {
        EXPECT_FALSE(sum.isfinite().any().item<bool>());
      } else {
        EXPECT_LT(distance(sum / size, 2 * both), 1e-5) << size;
      }
    }
  });
}

TEST(PowerSgd, GoesOnBitForBit) {
  const WorkersOptions options{.workers = 2, .exchange = power_sgd({.start_power_sgd_iter = 1})};
  with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    const auto steps = [](const Training& training, int from, int to) {
      for (int step = from; step < to; ++step) training.step([&](int replica) { return any_gradients(replica, step); });
    };
    const Training whole(strategy, torch::kFloat);
    const Training second(strategy, torch::kFloat);
    steps(whole, 0, 3);
    second.net.load_state(whole.net.state());
    second.sgd.load_state(whole.sgd.state());
    for (const torch::Tensor& each : second.sgd.accumulated()) EXPECT_EQ(each.numel(), 0);
    second.sgd.load_accumulated(whole.sgd.accumulated());
    steps(whole, 3, 6);
    steps(second, 3, 6);
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      EXPECT_TRUE(torch::equal(second.parameters()[i], whole.parameters()[i])) << i;
    }
    const Tensors again = second.sgd.accumulated();
    for (std::size_t i = 0; i < again.size(); ++i) EXPECT_TRUE(torch::equal(again[i], whole.sgd.accumulated()[i])) << i;
    Tensors wrong = again;
    wrong[1] = torch::ones({2, 2});
    expect_error<InvalidArgument>(
        [&] { second.sgd.load_accumulated(wrong); },
        "the error of gradient_compression power_sgd for p0 has shape [2, 2], wanted [24, 40]");
    second.sgd.load_state(whole.sgd.state());
    for (const torch::Tensor& each : second.sgd.accumulated()) EXPECT_EQ(each.numel(), 0) << "load_state() drops them";
  });
}

// Replicas of one process that send each other messages are a party each.
TEST(PowerSgdOfReplicas, IsExactForSmallRanksToo) {
  const Strategy strategy =
      MirroredStrategy({.devices = cpu_devices(3),
                        .exchange = {.cross_device_ops = "reduction_to_one_device",
                                     .gradient_compression = "power_sgd",
                                     .power_sgd = {.matrix_approximation_rank = 2, .start_power_sgd_iter = 0}}});
  for (const auto dtype : {torch::kDouble, torch::kBFloat16}) {
    const Training training(strategy, dtype);
    const auto gradients = [](int replica) { return low_gradients(replica, 0, 2); };
    const Tensors sums = training.step(gradients);
    const Tensors wanted = total(3, gradients);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      EXPECT_LT(distance(sums[i].to(torch::kDouble), wanted[i]), dtype == torch::kDouble ? 1e-9 : 0.2) << i;
      EXPECT_TRUE(torch::equal(training.net[0]->parameters()[i], training.net[2]->parameters()[i]));
    }
    EXPECT_EQ(training.sgd.accumulated().size(), 3 * 2 * kShapes.size());
  }
}

TEST(PowerSgdRefused, WhereItHasNoMeaning) {
  const auto with = [](const ExchangeOptions& exchange, const ShardingOptions& sharding = {}) {
    return [=] { MirroredStrategy({.devices = cpu_devices(2), .exchange = exchange, .sharding = sharding}); };
  };
  expect_error<InvalidArgument>(with({.power_sgd = {.matrix_approximation_rank = 2}}),
                                "options of power_sgd came, but gradient_compression is none");
  expect_error<InvalidArgument>(with(power_sgd({.matrix_approximation_rank = 0})),
                                "matrix_approximation_rank 0, start_power_sgd_iter 1000");
  expect_error<InvalidArgument>(with(power_sgd({}), {.stage = 1}),
                                "sharding.stage is 1 and gradient_compression is power_sgd");
  ExchangeOptions packs = power_sgd({.start_power_sgd_iter = 0});
  packs.num_packs = 2;
  expect_error<InvalidArgument>(with(packs), "with start_power_sgd_iter 0 there are only messages of factors");
  MultiWorkerOptions overlapped{.exchange = power_sgd({})};
  overlapped.communication.overlap = true;
  expect_error<InvalidArgument>([&] { MultiWorkerMirroredStrategy{overlapped}; },
                                "communication.overlap is true, but gradients leave after backward");

  const auto refuse = [](const Strategy& strategy, const Optimizer& rule, const std::string& part) {
    const auto net = strategy.mirror([] { return torch::nn::Linear(4, 4); });
    expect_error<InvalidArgument>([&] { (void)strategy.optimizer(net, rule); }, part);
  };
  ExchangeOptions messages = power_sgd({});
  refuse(MirroredStrategy({.devices = cpu_devices(2), .exchange = messages}), SGD(),
         "gradient_compression is power_sgd, but there are no messages of gradients");
  messages.cross_device_ops = "reduction_to_one_device";
  refuse(MirroredStrategy({.devices = cpu_devices(2), .exchange = messages}),
         SGD({.gradient = {.loss_scale = LossScale()}}), "has a loss_scale, and gradient_compression of mirrored");
}

}  // namespace
}  // namespace cohort::power_sgd_test
