// Workers that update parameters of their own and bring them together now and then, against the same in one thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/access.h"
#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "step/step.h"
#include "strategy/module_pieces.h"
#include "tests/support/errors.h"
#include "tests/support/workers.h"

namespace cohort::local_sgd_test {
namespace {

using testing::expect_error;
using testing::with_workers;
using testing::WorkersOptions;

using Tensors = std::vector<torch::Tensor>;

constexpr int64_t kSize = 300;

torch::nn::Linear layer(torch::ScalarType dtype) {
  torch::nn::Linear made(kSize, 2);
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& p : made->parameters()) p.copy_(torch::sin(torch::arange(p.numel())).view_as(p) * 0.1);
  made->to(dtype);
  return made;
}

// A replica's examples of a step: shares of different sizes.
torch::Tensor rows(int replica, int step, torch::ScalarType dtype) {
  const auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(100 * step + replica));
  return torch::randn({2 + replica % 2, kSize}, generator, dtype);
}

torch::Tensor loss_of(const torch::nn::Linear& net, const torch::Tensor& x) {
  return (net->weight.mm(x.t()) + net->bias.unsqueeze(1)).tanh().square().sum();
}

// A training of one worker. The loss is a part of the mean over all examples, 5 of two replicas.
struct Training {
  Training(const Strategy& own, const Optimizer& rule, torch::ScalarType type = torch::kDouble)
      : strategy(own), dtype(type), net(own.mirror([&] { return layer(type); })), optimizer(own.optimizer(net, rule)) {}

  void steps(int first, int last) const {
    for (int step = first; step < last; ++step) {
      strategy.run([&](Replica& replica) {
        const double examples = 2.5 * replica.num_replicas_in_sync();
        optimizer[replica].minimize(loss_of(net[replica], rows(replica.id(), step, dtype)) / examples);
      });
    }
  }
  Tensors parameters() const {
    Tensors list;
    for (const auto& parameter : net.copies().back()->parameters()) list.push_back(parameter.detach().clone());
    return list;
  }

  Strategy strategy;
  torch::ScalarType dtype;
  Mirrored<torch::nn::Linear> net;
  MirroredOptimizer optimizer;
};

double distance(const Tensors& a, const Tensors& b) {
  double most = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, (a[i] - b[i]).abs().max().item<double>());
  return most;
}

// Runs so many steps on a group and returns the parameters of each worker.
std::vector<Tensors> after(int workers, int replicas, const LocalSgdOptions& local, const Optimizer& rule, int steps,
                           const std::function<void(const Training&)>& then = {}) {
  std::vector<Tensors> results(static_cast<std::size_t>(workers));
  const WorkersOptions options{.workers = workers, .replicas = replicas, .local_sgd = local};
  with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    const Training training(strategy, rule);
    training.steps(0, steps);
    EXPECT_EQ(training.optimizer.iterations(), steps);
    if (then) then(training);
    results[static_cast<std::size_t>(strategy.worker_rank())] = training.parameters();
  });
  return results;
}

// The same of workers of one replica, one after the other: each has an optimizer of its own, and every `every` steps
// the outer optimizer takes what they have moved. Returns the parameters that they begin with then.
Tensors expected(int workers, const LocalSgdOptions& local, const Optimizer& rule, int steps) {
  const OneDeviceStrategy alone("/CPU:0");
  std::vector<Training> all;
  for (int w = 0; w < workers; ++w) all.emplace_back(alone, rule);
  Tensors begin = all.front().parameters();
  Tensors momentum = {torch::zeros_like(begin[0]), torch::zeros_like(begin[1])};
  for (int step = 0; step < steps; ++step) {
    for (int w = 0; w < workers; ++w) {
      const Training& own = all[static_cast<std::size_t>(w)];
      alone.run([&](Replica& replica) {
        own.optimizer[replica].minimize(loss_of(own.net[replica], rows(w, step, torch::kDouble)) / 2.5);
      });
    }
    if ((step + 1) % local.sync_every != 0) continue;
    for (std::size_t i = 0; i < begin.size(); ++i) {
      torch::Tensor moved = torch::zeros_like(begin[i]);
      for (const Training& own : all) moved += (begin[i] - own.parameters()[i]) / workers;
      momentum[i] = local.outer_momentum * momentum[i] + moved;
      const torch::Tensor along = local.outer_nesterov ? moved + local.outer_momentum * momentum[i] : momentum[i];
      begin[i] = begin[i] - local.outer_learning_rate * along;
    }
    for (const Training& own : all) {
      const torch::NoGradGuard no_grad;
      own.net[0]->weight.copy_(begin[0]);
      own.net[0]->bias.copy_(begin[1]);
    }
  }
  return begin;
}

TEST(LocalSgd, EveryStepOfPlainSgdIsSynchronousTraining) {
  const Optimizer sgd = SGD({.learning_rate = 0.1});
  const std::vector<Tensors> local = after(2, 2, {.sync_every = 1}, sgd, 5);
  const std::vector<Tensors> synchronous = after(2, 2, {}, sgd, 5);
  EXPECT_EQ(distance(local[0], local[1]), 0.0);
  EXPECT_LT(distance(local[0], synchronous[0]), 1e-9);
}

TEST(LocalSgd, IsTheMeanOfTrainingsApart) {
  const Optimizer adam = Adam({.learning_rate = 0.01, .gradient = {.global_clipnorm = 0.05}});
  const LocalSgdOptions local{.sync_every = 3};
  const std::vector<Tensors> got = after(3, 1, local, adam, 6);
  for (const Tensors& own : got) EXPECT_EQ(distance(own, got[0]), 0.0) << "the same bits";
  EXPECT_LT(distance(got[0], expected(3, local, adam, 6)), 1e-9);
  const std::vector<Tensors> apart =
      after(3, 1, local, adam, 7, [](const Training& training) { compare_copies(training.net); });
  EXPECT_GT(distance(apart[0], apart[1]), 1e-4);
  // The end of a training brings them together.
  const std::vector<Tensors> end =
      after(3, 1, local, adam, 7, [](const Training& training) { training.optimizer.finalize_variable_values(); });
  for (std::size_t i = 0; i < 2; ++i) {
    const torch::Tensor mean = (apart[0][i] + apart[1][i] + apart[2][i]) / 3;
    EXPECT_LT((end[0][i] - mean).abs().max().item<double>(), 1e-9);
  }
  for (const Tensors& own : end) EXPECT_EQ(distance(own, end[0]), 0.0);
}

TEST(LocalSgd, DiLoCoIsThePapersOuterStep) {
  const Optimizer adamw = AdamW({.learning_rate = 0.01});
  const LocalSgdOptions diloco{.sync_every = 100, .outer_learning_rate = 0.7, .outer_momentum = 0.9};
  EXPECT_TRUE(diloco.outer_nesterov);
  for (const bool nesterov : {true, false}) {
    const LocalSgdOptions local{
        .sync_every = 2, .outer_learning_rate = 0.7, .outer_momentum = 0.9, .outer_nesterov = nesterov};
    const std::vector<Tensors> got = after(2, 1, local, adamw, 8);
    EXPECT_EQ(distance(got[0], got[1]), 0.0);
    EXPECT_LT(distance(got[0], expected(2, local, adamw, 8)), 1e-9);
    EXPECT_LT(distance(after(1, 1, local, adamw, 4)[0], expected(1, local, adamw, 4)), 1e-9) << "a single worker, too";
  }
}

// The outer momentum is of what workers have moved.
TEST(LocalSgd, LoadedParametersAreWhereTheWorkersBegin) {
  const WorkersOptions options{.workers = 2, .local_sgd = {.sync_every = 2, .outer_momentum = 0.9}};
  with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    const Training training(strategy, SGD({.learning_rate = 0.0}));
    training.steps(0, 2);
    NamedTensors loaded = training.net.state();
    for (auto& [name, value] : loaded) value = value + 100.0;
    training.net.load_state(loaded);
    training.steps(2, 4);
    const Tensors got = training.parameters();
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(torch::equal(got[i], loaded[i].second)) << i;
  });
}

TEST(LocalSgd, BeginsAfterSynchronousSteps) {
  const Optimizer momentum = SGD({.learning_rate = 0.1, .momentum = 0.9});
  const LocalSgdOptions local{.sync_every = 2, .start_iter = 3};
  const std::vector<Tensors> synchronous = after(2, 1, {}, momentum, 3);
  EXPECT_EQ(distance(after(2, 1, local, momentum, 3)[1], synchronous[0]), 0.0);
  for (const int steps : {4, 5, 6, 7}) {
    const std::vector<Tensors> got = after(2, 1, local, momentum, steps);
    EXPECT_EQ(distance(got[0], got[1]) == 0.0, steps % 2 == 1) << steps;
  }
}

// Also when the workers are apart.
TEST(LocalSgd, GoesOnBitForBit) {
  const WorkersOptions options{
      .workers = 2, .replicas = 2, .local_sgd = {.sync_every = 3, .outer_learning_rate = 0.7, .outer_momentum = 0.9}};
  with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    const Training whole(strategy, Adam(), torch::kFloat);
    const Training second(strategy, Adam(), torch::kFloat);
    whole.steps(0, 5);
    second.net.load_state(whole.net.state());
    second.optimizer.load_state(whole.optimizer.state());
    second.optimizer.load_accumulated(whole.optimizer.accumulated());
    EXPECT_EQ(distance(second.parameters(), whole.parameters()), 0.0);
    whole.steps(5, 10);
    second.steps(5, 10);
    EXPECT_EQ(distance(second.parameters(), whole.parameters()), 0.0);
    Tensors wrong = whole.optimizer.accumulated();
    wrong[1] = torch::ones({2, 2});
    expect_error<InvalidArgument>([&] { second.optimizer.load_accumulated(wrong); },
                                  "the outer state of local_sgd has shape [2, 2]");
  });
}

// A sharded checkpoint is no mixture of several workers' parameters.
TEST(LocalSgd, TheChiefWritesAllPieces) {
  with_workers({.workers = 2, .local_sgd = {.sync_every = 3}}, [&](const MultiWorkerMirroredStrategy& strategy) {
    const Training training(strategy, Adam());
    training.steps(0, 2);
    const bool is_chief = strategy.worker_rank() == 0;
    EXPECT_EQ(pieces_of(training.net).size(), is_chief ? 2U : 0U);
    const std::size_t numbers_and_slots = training.optimizer.state().size();
    EXPECT_EQ(Access::step(training.optimizer)->state().pieces().size(), is_chief ? numbers_and_slots : 0U);
  });
}

TEST(LocalSgdRefused, WhereItHasNoMeaning) {
  const auto refuse = [](MultiWorkerOptions options, const std::string& part) {
    options.devices = cpu_devices(1);
    expect_error<InvalidArgument>([&] { MultiWorkerMirroredStrategy{options}; }, part);
  };
  refuse({.local_sgd = {.sync_every = -1}}, "local_sgd has sync_every -1");
  refuse({.local_sgd = {.outer_learning_rate = 0.7}}, "local_sgd has sync_every 0");
  refuse({.local_sgd = {.sync_every = 2, .outer_momentum = 1.0}}, "outer_momentum 1;");
  refuse({.local_sgd = {.sync_every = 2, .outer_nesterov = false}}, "outer_nesterov is false, and outer_momentum is 0");
  refuse({.local_sgd = {.sync_every = 2}, .sharding = {.stage = 1}},
         "sharding.stage is 1 and local_sgd.sync_every is 2");
  refuse({.exchange = {.gradient_compression = "power_sgd"}, .local_sgd = {.sync_every = 2}},
         "gradient_compression is power_sgd and local_sgd.sync_every is 2");
  refuse({.communication = {.overlap = true}, .local_sgd = {.sync_every = 2}}, "communication.overlap is true");

  const MultiWorkerMirroredStrategy strategy({.devices = cpu_devices(1), .local_sgd = {.sync_every = 2}});
  const auto net = strategy.mirror([] { return torch::nn::Linear(3, 3); });
  expect_error<InvalidArgument>([&] { (void)strategy.optimizer(net, SGD({.gradient = {.loss_scale = LossScale()}})); },
                                "has a loss_scale");
  expect_error<InvalidArgument>([&] { (void)strategy.optimizer(net, SGD({.ema = {.use_ema = true}})); }, "has use_ema");
  const auto half = strategy.mirror([] { return layer(torch::kBFloat16); });
  expect_error<Unimplemented>([&] { (void)strategy.optimizer(half, SGD()); }, "local_sgd.sync_every is 2");
}

}  // namespace
}  // namespace cohort::local_sgd_test
