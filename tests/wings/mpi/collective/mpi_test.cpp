// Run by mpirun: every rank is a process that runs the same tests.
#include "wings/mpi/collective/mpi.h"
#include "collective/process/process_communicator.h"
#include "tests/collective/process/conformance.h"
#include "tests/support/process_ranks.h"
#include "tests/wings/mpi/collective/ranks.h"

namespace cohort::mpi_test {
namespace {

TEST(Mpi, DoesWhatACommunicatorMust) {
  ProcessCommunicator world(make_mpi(std::chrono::seconds(20)), {});
  EXPECT_GT(world.size(), 1) << "started by mpirun?";
  EXPECT_EQ(world.name(), "mpi");
  testing::check_sums(world);
  testing::check_order_of_sums(world, &world);
  testing::check_half_sums(world);
  testing::check_repeats(world);
  testing::check_shared_sums(world);
  EXPECT_THAT(world.recorder().dump(), ::testing::HasSubstr("in shared memory"));
  testing::check_copies(world);
  testing::check_wrong_calls(world);
}

TEST(Mpi, MovesPiecesAndMessagesAndSplits) {
  ProcessCommunicator world(make_mpi(std::chrono::seconds(20)), {});
  testing::check_pieces(world);
  testing::check_messages(world);
  testing::check_async(world);
  testing::check_split(world);
}

// Sums of MPI's beside those of our own collectives over the same ranks' TCP.
TEST(Mpi, AddsUpWhatTheRingDoes) {
  const std::shared_ptr<Membership> tasks = testing::membership_of_ranks(std::chrono::seconds(20));
  ProcessCommunicator world(make_mpi(std::chrono::seconds(20)), {});
  const auto ring = testing::connect(tasks, {});
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(world.rank() + 1));
  const torch::Tensor mine = torch::randn({world.size() * 50'001}, generator, torch::kDouble);
  std::vector<torch::Tensor> uneven;
  for (int r = 0; r < world.size(); ++r) uneven.push_back(mine.narrow(0, r, r * r * 1000));
  const auto sums_of = [&](ProcessCommunicator& group) {
    torch::Tensor all = mine.clone();
    group.all_reduce({&all, 1}, ReduceOp::kSum);
    return torch::cat({all, group.reduce_scatter(mine, ReduceOp::kMean), group.reduce_pieces(uneven)});
  };
  EXPECT_TRUE(torch::allclose(sums_of(world), sums_of(*ring), /*rtol=*/0, /*atol=*/1e-9));
}

TEST(Mpi, ChoosesItsOwnAlgorithm) {
  testing::expect_error<InvalidArgument>(
      [] { const ProcessCommunicator world(make_mpi(std::chrono::seconds(20)), {.agreement = {.algorithm = "tree"}}); },
      "[collective] mpi: the algorithm is \"tree\", but mpi chooses its own");
}

TEST(Mpi, AMismatchIsFoundOnEveryRank) {
  ProcessCommunicator world(make_mpi(std::chrono::seconds(20)), {});
  std::vector<torch::Tensor> tensors{torch::ones({world.rank() == 1 ? 4 : 5})};
  testing::expect_error<FailedPrecondition>([&] { world.all_reduce(tensors, ReduceOp::kSum); },
                                            "do not do the same in collective 1: rank 0 calls");
  world.barrier();
}

TEST(Mpi, CarriesTheLeadersAddress) {
  ProcessCommunicator world(make_mpi(std::chrono::seconds(20)), {});
  EXPECT_EQ(mpi_broadcast(world.rank() == 0 ? "host:1" : ""), "host:1");
}

}  // namespace
}  // namespace cohort::mpi_test
