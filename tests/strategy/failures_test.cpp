// These tests are about failures: each ends in a clear error, soon, and the strategy can be used again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "tests/support/errors.h"

namespace cohort::failures_test {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

MirroredStrategy mirrored(int replicas, std::chrono::milliseconds timeout = 1h) {
  return MirroredStrategy({.devices = cpu_devices(replicas), .exchange = {.timeout = timeout}});
}

void expect_usable(const Strategy& strategy) {
  const auto sums = strategy.run([](Replica& replica) { return replica.all_reduce(ReduceOp::kSum, torch::ones({2})); });
  EXPECT_EQ(sums[0][0].item<float>(), static_cast<float>(strategy.num_replicas_in_sync()));
}

// Two seconds after that, however busy the machine is.
void be_late_for(const std::atomic<bool>& event) {
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (!event && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(2s);
}

TEST(Failures, AReplicaThatThrowsStopsTheOthersAndItsErrorArrives) {
  for (const int thrower : {0, 1, 2}) {
    const auto strategy = mirrored(3);
    EXPECT_EQ(error_of<std::runtime_error>([&] {
                strategy.run([&](Replica& replica) {
                  if (replica.id() == thrower) throw std::runtime_error("out of luck");
                  replica.barrier();
                });
              }),
              "out of luck");
    expect_usable(strategy);
  }
}

TEST(Failures, AReplicaThatThrowsWithinACollectiveStopsTheOthersAndItsErrorArrives) {
  for (const int thrower : {0, 1, 2}) {
    const auto strategy = mirrored(3);
    const std::string error = error_of<c10::Error>([&] {
      strategy.run([&](Replica& replica) {
        torch::Tensor given = torch::ones({3});
        if (replica.id() == thrower) given = torch::ones({1}).expand({3});  // nothing can be copied to it
        replica.communicator().broadcast({&given, 1}, (thrower + 1) % 3);
      });
    });
    EXPECT_THAT(error, HasSubstr("single memory location"));
    expect_usable(strategy);
  }
}

TEST(Failures, RunFromASecondThreadIsRefused) {
  for (const int replicas : {1, 2}) {
    const auto strategy = mirrored(replicas);
    std::atomic<bool> runs = false, may_end = false;
    std::thread first([&] {
      strategy.run([&] {
        runs = true;
        while (!may_end) std::this_thread::sleep_for(1ms);
      });
    });
    while (!runs) std::this_thread::sleep_for(1ms);
    EXPECT_THAT(error_of<FailedPrecondition>([&] { strategy.run([] {}); }),
                HasSubstr("run() was called before another run() of this strategy has returned"));
    may_end = true;
    first.join();
    expect_usable(strategy);
  }
}

// A child has none of its parent's threads: neither those of the replicas nor those of LibTorch.
TEST(Failures, RunInAForkedProcessIsRefused) {
  for (const int replicas : {1, 2}) {
    const auto strategy = mirrored(replicas);
    expect_usable(strategy);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(300);  // ends a child that waits
      const std::string before = error_of<FailedPrecondition>([&] { strategy.run([] {}); });
      const auto made_there = mirrored(replicas);
      const std::string after = error_of<FailedPrecondition>([&] { made_there.run([] {}); });
      const bool named = before.find("after the strategy was made") != std::string::npos &&
                         after.find("after another strategy had run") != std::string::npos;
      ::_exit(named ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << replicas << " replica(s), status " << status;
    expect_usable(strategy);
  }
}

// LibTorch's own modules do not know that a batch was divided.
TEST(Failures, AnErrorOfLibTorchTellsOfASmallShare) {
  const auto strategy = mirrored(2);
  const auto forward = [&](const auto& module, int64_t rows) {
    return error_of<c10::Error>([&] {
      const auto shares = strategy.values_from_function([&](const ValueContext& place) {
        const int64_t begin = place.replica_id_in_sync_group * 2;
        return Example{.x = torch::randn({5, 3, 4}).slice(0, 0, std::clamp<int64_t>(rows - begin, 0, 2))};
      });
      strategy.run([&](Replica&, const Example& share) { module(share.x); }, shares);
    });
  };
  const auto norm = [](const torch::Tensor& x) { torch::nn::BatchNorm1d(12)->forward(x.flatten(1)); };
  EXPECT_THAT(forward(norm, 3), AllOf(HasSubstr("Expected more than 1 value per channel"),
                                      HasSubstr("replica 1 of 2 has 1 of the batch's 3 examples"),
                                      HasSubstr("wants larger batches, and drop_remainder for the last one")));
  const auto attention = [](const torch::Tensor& x) {
    const torch::Tensor steps = x.transpose(0, 1);
    torch::nn::MultiheadAttention(4, 2)->forward(steps, steps, steps);
  };
  EXPECT_THAT(forward(attention, 2), HasSubstr("replica 1 of 2 has 0 of the batch's 2 examples"));
  // Where the share is not small the error is LibTorch's alone.
  const auto wrong = [](const torch::Tensor& x) { torch::nn::Linear(7, 2)->forward(x); };
  EXPECT_THAT(forward(wrong, 4), Not(HasSubstr("of the batch's")));
  expect_usable(strategy);
}

TEST(Failures, ANonStandardExceptionArrivesToo) {
  const auto strategy = mirrored(2);
  EXPECT_THROW(strategy.run([](Replica& replica) {
    if (replica.id() == 1) throw 42;  // NOLINT
    replica.barrier();
  }),
               int);
  expect_usable(strategy);
}

TEST(Failures, DifferentNumbersOfMergeCallsAreNamed) {
  const auto strategy = mirrored(2);
  EXPECT_THAT(error_of<FailedPrecondition>([&] {
                strategy.run([](Replica& replica) {
                  replica.merge_call([](const Strategy&) {});
                  if (replica.id() == 1) replica.merge_call([](const Strategy&) {});
                });
              }),
              HasSubstr("replica 1 waits in merge_call for replica 0, which has already returned"));
  expect_usable(strategy);
}

TEST(Failures, MismatchedCollectivesAreNamed) {
  const auto strategy = mirrored(2);
  EXPECT_THAT(error_of<FailedPrecondition>([&] {
                strategy.run([](Replica& replica) {
                  if (replica.id() == 0) {
                    replica.all_reduce(ReduceOp::kSum, torch::zeros({3}));
                  } else {
                    replica.all_gather(torch::zeros({3}));
                  }
                });
              }),
              AllOf(HasSubstr("replica 0 calls all_reduce of Float[3]"), HasSubstr("replica 1 calls all_gather")));
  expect_usable(strategy);
}

TEST(Failures, AFunctionThatFailsInMergeCallFailsOnceAndClearly) {
  const auto strategy = mirrored(3);
  EXPECT_EQ(error_of<InvalidArgument>([&] {
              strategy.run([](Replica& replica) {
                replica.merge_call([](const Strategy&) { throw InvalidArgument("[test] no"); });
              });
            }),
            "[test] no");
  expect_usable(strategy);
}

TEST(Failures, AReplicaThatIsLateEndsTheCollectiveAtItsDeadline) {
  const auto strategy = mirrored(2, 60ms);
  std::atomic<bool> other_waits = false;
  EXPECT_THAT(error_of<DeadlineExceeded>([&] {
                strategy.run([&](Replica& replica) {
                  if (replica.id() == 1) be_late_for(other_waits);
                  other_waits = true;
                  replica.barrier();
                });
              }),
              HasSubstr("replica 0 waited 60 ms in barrier for replica(s) 1"));
}

TEST(Failures, AReplicaThatDoesNotReturnIsGivenUp) {
  const auto done = std::make_shared<std::atomic<bool>>(false);
  const auto other_is_done = std::make_shared<std::atomic<bool>>(false);
  {
    const auto strategy = mirrored(2, 50ms);
    EXPECT_THAT(error_of<DeadlineExceeded>([&] {
                  strategy.run([done, other_is_done](Replica& replica) {
                    if (replica.id() == 0) other_is_done->store(true);
                    if (replica.id() == 1) be_late_for(*other_is_done);
                    if (replica.id() == 1) done->store(true);
                  });
                }),
                HasSubstr("replica(s) 1 had not returned from their function 50 ms after replica 0 did"));
    EXPECT_THAT(error_of<FailedPrecondition>([&] { strategy.run([] {}); }), HasSubstr("make a new one"));
  }
  // The test waits until its thread has let go of the function, and then of the strategy, which it must not do while
  // the program ends.
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (done.use_count() > 1 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(200ms);
  EXPECT_TRUE(done->load());
}

TEST(Failures, WrongUsesOfAnOptimizerAreNamed) {
  const auto strategy = mirrored(2);
  auto net = strategy.mirror([] { return torch::nn::Linear(2, 1); });
  auto sgd = strategy.optimizer(net, SGD({.learning_rate = 0.1}));
  EXPECT_THAT(
      error_of<InvalidArgument>([&] {
        strategy.run([&](Replica& replica) { sgd[replica].minimize(net[replica]->forward(torch::ones({3, 2}))); });
      }),
      HasSubstr("needs a scalar loss, got shape [3, 1]"));
  EXPECT_THAT(error_of<InvalidArgument>(
                  [&] { strategy.run([&](Replica& replica) { sgd[replica].minimize(torch::zeros({})); }); }),
              HasSubstr("does not depend on any parameter"));
  EXPECT_THAT(
      error_of<InvalidArgument>([&] { strategy.run([&](Replica& replica) { sgd[replica].apply_gradients({}); }); }),
      HasSubstr("got 0 gradients, wanted one for each of the 2"));
  EXPECT_THAT(
      error_of<InvalidArgument>([&] {
        strategy.run([&](Replica& replica) { sgd[replica].apply_gradients({torch::ones({1}), torch::ones({1})}); });
      }),
      HasSubstr("the gradient of weight has shape [1], the parameter [1, 2]"));
  for (const auto& copy : net.copies()) copy->to(torch::kDouble);
  EXPECT_THAT(error_of<FailedPrecondition>([&] {
                strategy.run([&](Replica& replica) {
                  sgd[replica].minimize(net[replica]->forward(torch::ones({3, 2}, torch::kDouble)).sum());
                });
              }),
              HasSubstr("was moved or converted"));
  auto frozen = strategy.mirror([] {
    torch::nn::Linear linear(2, 1);
    for (auto& parameter : linear->parameters()) parameter.set_requires_grad(false);
    return linear;
  });
  EXPECT_THROW(strategy.optimizer(frozen, SGD()), FailedPrecondition);
}

}  // namespace
}  // namespace cohort::failures_test
