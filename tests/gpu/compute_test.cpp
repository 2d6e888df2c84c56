// Which cards there are, and the processors that feed them.
#include <gmock/gmock.h>
#include <sched.h>
#include <torch/torch.h>

#include <cstdlib>

#include "cohort/cohort.h"
#include "tests/gpu/cards.h"
#include "tests/support/errors.h"

namespace cohort::compute_on_cards_test {
namespace {

using namespace gpu;

bool may_run_on(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_ISSET(processor, &set);
}

TEST(ComputeOnCards, AReplicaRunsNearItsCard) {
  COHORT_NEEDS_CARDS(2);
  if (!stands_in()) GTEST_SKIP() << "what is near is the machine's";
  if (!may_run_on(0) || !may_run_on(1)) GTEST_SKIP() << "needs the processors 0 and 1";
  put_cards_near_processors(true);
  const Strategy strategy = MirroredStrategy({.devices = on_cards(2)});
  put_cards_near_processors(false);
  const auto near = strategy.run([](Replica& replica) {
    return torch::tensor(may_run_on(replica.local_id()) && !may_run_on(1 - replica.local_id()));
  });
  for (std::size_t r = 0; r < 2; ++r) EXPECT_TRUE(near[r].item<bool>()) << r;
  EXPECT_TRUE(may_run_on(0) && may_run_on(1)) << "outside of run() as before";
}

TEST(ComputeOnCards, AreDescribed) {
  COHORT_NEEDS_CARDS(1);
  const DeviceDetails details = get_device_details(list_physical_devices("GPU")[0]);
  EXPECT_FALSE(details.device_name.empty());
  EXPECT_TRUE(details.compute_capability.has_value());
  if (stands_in()) return;
  EXPECT_THAT(details.uuid, ::testing::MatchesRegex("(GPU|MIG)-[0-9a-f-]+"));
  EXPECT_THAT(details.pci_address, ::testing::MatchesRegex("[0-9A-Fa-f:]+\\.[0-9]"));
}

}  // namespace
}  // namespace cohort::compute_on_cards_test
