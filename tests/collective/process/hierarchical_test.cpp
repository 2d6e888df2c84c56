#include "collective/process/hierarchical.h"

#include "tests/collective/process/conformance.h"
#include "tests/support/process_ranks.h"
#include "tests/support/ranks.h"

namespace cohort::hierarchical_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::with_process_ranks;
using testing::with_ranks;

// fn(group) as each replica of `workers` processes of `local` replicas.
void with_replicas(int workers, int local, const std::function<void(Communicator&)>& fn) {
  with_process_ranks(workers, [&](ProcessCommunicator& world, Membership&) {
    with_ranks(local, [&](Communicator& group) { fn(*make_hierarchical(group, world)); });
  });
}

TEST(Hierarchical, DoesWhatACommunicatorMust) {
  for (const auto& [workers, local] : std::vector<std::pair<int, int>>{{1, 2}, {2, 1}, {2, 2}, {3, 2}}) {
    with_replicas(workers, local, [local = local](Communicator& group) {
      testing::check_sums(group);
      testing::check_copies(group);
      testing::check_wrong_calls(group);
      if (local == 1) testing::check_order_of_sums(group);
    });
  }
}

TEST(Hierarchical, AddsUpTheSameBitsEverywhere) {
  with_replicas(2, 2, [](Communicator& group) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(group.rank()));
    torch::Tensor sum = torch::randn({100'003}, generator, torch::kFloat);
    group.all_reduce({&sum, 1}, ReduceOp::kMean);
    for (const torch::Tensor& other : group.all_gather(sum)) EXPECT_TRUE(torch::equal(other, sum));
  });
}

TEST(Hierarchical, RanksAreThoseOfTheProcessesFirst) {
  with_replicas(2, 3, [](Communicator& group) {
    EXPECT_EQ(group.size(), 6);
    EXPECT_EQ(group.name(), "gloo");
    const auto ranks = group.all_gather(torch::tensor({group.rank()}));
    for (int r = 0; r < 6; ++r) EXPECT_EQ(ranks[static_cast<std::size_t>(r)].item<int64_t>(), r);
  });
}

}  // namespace
}  // namespace cohort::hierarchical_test
