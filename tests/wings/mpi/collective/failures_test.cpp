// Run by mpirun, which is told to let the others go on when one is killed. Whoever has met a failure cannot end MPI any
// more, so mpirun's own exit status says nothing: ctest looks for what the ranks print.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <csignal>
#include <thread>

#include "collective/engine.h"
#include "tests/support/errors.h"
#include "tests/wings/mpi/collective/ranks.h"

namespace cohort::mpi_failures_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::unique_ptr<ProcessCommunicator> connect(const std::shared_ptr<Membership>& tasks, milliseconds timeout) {
  return std::make_unique<ProcessCommunicator>(
      make_mpi(timeout),
      ProcessGroupOptions{
          .agreement = {.membership = tasks, .timeout = timeout, .straggler_after = milliseconds(200)}});
}

void sum(ProcessCommunicator& world) {
  torch::Tensor tensor = torch::ones({100'000});
  world.all_reduce({&tensor, 1}, ReduceOp::kSum);
}

// A collective of MPI's that the others never begin.
TEST(MpiFailures, AnAbortEndsTheCallThatWaits) {
  const std::unique_ptr<Transport> transport = make_mpi(seconds(60));
  if (transport->rank() != 0) return;
  const std::jthread other([&] {
    std::this_thread::sleep_for(milliseconds(200));
    transport->abort();
  });
  const auto begin = std::chrono::steady_clock::now();
  const torch::Tensor tensor = torch::ones({100'000});
  EXPECT_ANY_THROW(transport->engine()->all_reduce(tensor));
  EXPECT_ANY_THROW(transport->engine()->all_gather(tensor, {400'000, 0, 0}, torch::empty({100'000})));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30)) << "not at its deadline";
}

TEST(MpiFailures, WhoDoesNotComeIsNamedAtTheDeadline) {
  const std::shared_ptr<Membership> tasks = testing::membership_of_ranks(seconds(7));
  const auto world = connect(tasks, seconds(4));
  tasks->barrier("begin", seconds(60));
  sum(*world);
  if (world->rank() != 1) {
    testing::expect_error<DeadlineExceeded>([&] { sum(*world); },
                                            "waited 4 s in all_reduce SUM of Float[100000] for worker 1");
  }
  tasks->barrier("end", seconds(60));
}

// The last test: rank 1 does not survive it.
TEST(MpiFailures, AKilledRankIsNamed) {
  const std::shared_ptr<Membership> tasks = testing::membership_of_ranks(seconds(5));
  const auto world = connect(tasks, seconds(60));
  sum(*world);
  if (world->rank() == 1) ::raise(SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  testing::expect_error<Unavailable>(
      [&] {
        for (;;) sum(*world);
      },
      "worker 1");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(40)) << "not at its deadline";
}

}  // namespace
}  // namespace cohort::mpi_failures_test
