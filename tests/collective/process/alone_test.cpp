// A group of one process: every operation is there and has nothing to do.
#include "collective/local/alone.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "collective/process/process_communicator.h"
#include "tests/collective/process/conformance.h"
#include "tests/support/errors.h"

namespace cohort::alone_test {
namespace {

TEST(AloneTest, DoesWhatEveryCommunicatorDoes) {
  ProcessCommunicator world(make_alone(), {});
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.rank(), 0);
  testing::check_sums(world);
  testing::check_order_of_sums(world);
  testing::check_shared_sums(world);
  testing::check_copies(world);
  testing::check_wrong_calls(world);
  testing::check_pieces(world);
  testing::check_async(world);
  testing::check_split(world);
}

TEST(AloneTest, AgreesWithItself) {
  ProcessCommunicator world(make_alone(), {});
  const ProcessCommunicator::Numbers numbers = {3, 4};
  EXPECT_EQ(world.gather_numbers("a step", numbers), std::vector{numbers});
}

TEST(AloneTest, HasNobodyToSendTo) {
  std::byte byte{};
  testing::expect_error<InvalidArgument>(
      [&] {
        (void)make_alone()->receive(1, {&byte, 1}, Transport::kCollectives);
      },
      "rank 1");
}

}  // namespace
}  // namespace cohort::alone_test
