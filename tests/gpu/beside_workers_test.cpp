// Gradients of replicas on cards of several workers, which leave beside backward over the host's transports; their ways
// to the host and back are late here.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <latch>
#include <thread>

#include "cohort/cohort.h"
#include "tests/gpu/cards.h"
#include "tests/gpu/stand_in_streams.h"
#include "tests/gpu/worker_training.h"
#include "tests/support/errors.h"
#include "tests/support/process_ranks.h"
#include "tests/support/workers.h"

namespace cohort::beside_workers_test {
namespace {

using namespace gpu;

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::with_process_ranks;
using testing::with_workers;
using testing::WorkersOptions;

WorkersOptions over_ring(Devices devices, const ExchangeOptions& exchange, std::optional<bool> overlap = {}) {
  WorkersOptions options{.workers = kWorkers, .devices = std::move(devices), .exchange = exchange};
  options.exchange.timeout = seconds(30);
  options.communication.overlap = overlap;
  return options;
}

WeightsOfWorkers trained_by_workers(const WorkersOptions& options, const Optimizer& rule) {
  WeightsOfWorkers weights;
  with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    weights[static_cast<std::size_t>(strategy.worker_rank())] = trained(strategy, rule);
  });
  EXPECT_TRUE(torch::equal(weights[0], weights[1])) << "the workers' copies differ";
  return weights;
}

// What is late changes nothing, and neither does whether sums are made during backward or after it.
TEST(BesideWorkers, TrainAsOneDeviceAndAsAfterBackward) {
  COHORT_NEEDS_THE_STAND_IN();
  const std::vector<std::pair<WorkersOptions, Optimizer>> all = {
      {over_ring(a_card_each(), {.bytes_per_pack = 64}), plain_rule()},
      {over_ring(cards_each(), {.bytes_per_pack = 1000}), rule_of_all()},
      {over_ring(cards_each(), {.num_packs = 3}), plain_rule()}};
  for (const auto& [options, rule] : all) {
    WorkersOptions afterwards = options;
    afterwards.communication.overlap = false;
    const int64_t before = late_works();
    const WeightsOfWorkers after = trained_by_workers(afterwards, rule);
    EXPECT_EQ(late_works(), before);
    const Late late(milliseconds(1));
    const WeightsOfWorkers beside = trained_by_workers(options, rule);
    EXPECT_GT(late_works(), before);
    EXPECT_LT(equivalence::distance(beside[0], trained(OneDeviceStrategy("/CPU:0"), rule)), 1e-9) << rule.name();
    EXPECT_TRUE(torch::equal(beside[0], after[0])) << rule.name();
  }
}

TEST(BesideWorkers, RoundedGradientsHaveTheBitsOfThoseAfterBackward) {
  COHORT_NEEDS_THE_STAND_IN();
  WorkersOptions options = over_ring(cards_each(), {.bytes_per_pack = 64, .gradient_compression = "bfloat16"}, true);
  const WeightsOfWorkers beside = trained_by_workers(options, plain_rule());
  options.communication.overlap = false;
  EXPECT_TRUE(torch::equal(beside[0], trained_by_workers(options, plain_rule())[0]));
  EXPECT_GT(equivalence::distance(beside[0], trained(OneDeviceStrategy("/CPU:0"), plain_rule())), 1e-6);
}

// The exchange is the part of a graphed step that the host makes each time.
TEST(BesideWorkers, StepsInGraphsTrainAsOthers) {
  COHORT_NEEDS_THE_STAND_IN();
  const auto trained_in = [](bool graphs) {
    WeightsOfWorkers weights;
    with_workers(over_ring(cards_each(), {.bytes_per_pack = 64}), [&](const MultiWorkerMirroredStrategy& strategy) {
      const Training training(strategy);
      const torch::Tensor x = torch::sin(torch::arange(40 * equivalence::kFeatures, torch::kDouble)).view({40, -1});
      const auto step = function(
          [&](Replica& replica, const Example& share) {
            const torch::Tensor y = training.net[replica]->forward(share.x, replica.id() % 2 == 1);
            training.optimizer[replica].minimize(replica.global_mean(y.square().sum(1)));
            return y.detach();
          },
          {.name = "step", .jit_compile = graphs});
      const int64_t before = segments_given();
      for (const GlobalBatch& batch : strategy.distribute(Dataset::from_tensor_slices(x).batch(8))) {
        (void)strategy.run(step, batch);
      }
      EXPECT_EQ(segments_given() > before, graphs);
      weights[static_cast<std::size_t>(strategy.worker_rank())] = training.weights();
    });
    EXPECT_TRUE(torch::equal(weights[0], weights[1])) << "the workers' copies differ";
    return weights[0];
  };
  EXPECT_TRUE(torch::equal(trained_in(true), trained_in(false)));
}

// Backward ends on neither worker before a sum over both is back.
TEST(BesideWorkers, SumsComeBackWhileBackwardRuns) {
  COHORT_NEEDS_THE_STAND_IN();
  std::atomic<int> seen = 0;
  with_workers(over_ring(a_card_each(), {.bytes_per_pack = 64}), [&](const Strategy& strategy) {
    const Training training(strategy);
    training.step(0);
    (void)training.weights();
    const int64_t before = late_works();
    training.step(1, [&](int) {
      // Each of both workers has fetched two buckets, and has one back.
      for (int wait = 0; wait < 5000 && late_works() < before + 5; ++wait) {
        std::this_thread::sleep_for(milliseconds(1));
      }
      if (late_works() >= before + 5) ++seen;
    });
  });
  EXPECT_EQ(seen, kWorkers);
}

TEST(BesideWorkers, ABackwardThatFailsEndsTheOthersByName) {
  COHORT_NEEDS_THE_STAND_IN();
  const auto begin = std::chrono::steady_clock::now();
  with_workers(over_ring(cards_each(), {.bytes_per_pack = 64}), [](const MultiWorkerMirroredStrategy& strategy) {
    const Training training(strategy);
    training.step(0);
    const auto fails = [](int replica) {
      if (replica == 3) throw std::runtime_error("out of luck");
    };
    if (strategy.worker_rank() == 1) {
      EXPECT_THAT(error_of<std::runtime_error>([&] { training.step(1, fails); }), HasSubstr("out of luck"));
      EXPECT_THROW(training.step(2), Error);
    } else {
      EXPECT_THAT(error_of<Unavailable>([&] { training.step(1); }), HasSubstr("out of luck"));
      EXPECT_THROW(training.step(2), Unavailable);
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(15)) << "not at the deadline";
}

TEST(BesideWorkers, OtherBucketsAndAnOverlapThatCannotBeAreErrors) {
  COHORT_NEEDS_THE_STAND_IN();
  testing::in_cluster(kWorkers, [](int rank, const ClusterOptions& cluster) {
    MultiWorkerOptions options{.resolver = cluster.resolver,
                               .communication = cluster.communication,
                               .membership = cluster.membership,
                               .devices = a_card_each()[static_cast<std::size_t>(rank)]};
    options.exchange.bytes_per_pack = rank == 0 ? 64 : 1000;
    const MultiWorkerMirroredStrategy strategy(options);
    const Training training(strategy);
    EXPECT_THAT(
        error_of<Error>([&] { training.step(0); }),
        AllOf(HasSubstr("worker 0 calls gradients in 8 buckets: 0["), HasSubstr("worker 1 calls gradients in 3 bu")));
  });
  with_workers(over_ring(cards_each(), {.cross_device_ops = "reduction_to_one_device"}, true), [](const Strategy& own) {
    EXPECT_THAT(error_of<InvalidArgument>([&] { const Training training(own); }),
                AllOf(HasSubstr("communication.overlap is true"), HasSubstr("reduction_to_one_device")));
  });
}

TEST(SumsOverTheHost, AWorkerThatDoesNotComeIsNamedAtTheDeadline) {
  COHORT_NEEDS_THE_STAND_IN();
  std::latch both(kWorkers);
  with_process_ranks(kWorkers, {.timeout = milliseconds(300), .heartbeat_timeout = seconds(1)},
                     [&](ProcessCommunicator& world, Membership&) {
                       const auto sums = sums_over(world, milliseconds(300));
                       if (world.rank() == 0) {
                         const torch::Tensor mine = torch::ones({4}).to(card_of(0));
                         const auto ends = sums->begin("gradients, bucket 1 of 1", {{mine}}, {sums->mark(0)});
                         const auto waits = [&] { ends[0][0]->wait(mine.device()); };
                         EXPECT_THAT(error_of<DeadlineExceeded>(waits),
                                     AllOf(HasSubstr("worker 0 waited 300 ms in all_reduce SUM of Float[4]"),
                                           HasSubstr("for worker 1")));
                         EXPECT_THROW(sums->require_well(), DeadlineExceeded);
                         EXPECT_THROW((void)sums->begin("more", {{mine}}, {sums->mark(0)}), DeadlineExceeded);
                       }
                       both.arrive_and_wait();
                     });
}

}  // namespace
}  // namespace cohort::beside_workers_test
