// Run by mpirun: every rank is a process that runs the same tests.
#include "wings/mpi/collective/mpi.h"
#include "collective/process/process_communicator.h"
#include "tests/collective/process/conformance.h"
#include "wings/mpi/cluster/mpi_runtime.h"

namespace cohort::mpi_test {
namespace {

TEST(Mpi, DoesWhatACommunicatorMust) {
  ProcessCommunicator world(make_mpi(std::chrono::seconds(20)), {});
  EXPECT_EQ(world.size(), 3) << "started by mpirun -n 3?";
  EXPECT_EQ(world.name(), "mpi");
  testing::check_sums(world);
  testing::check_order_of_sums(world);
  testing::check_order_of_sums(world, &world);
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
