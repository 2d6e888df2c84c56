#include "collective/algorithms/hierarchical.h"

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
      testing::check_pieces(group);
      testing::check_messages(group);
      testing::check_async(group);
      testing::check_split(group);
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
    EXPECT_EQ(group.name(), "tcp");
    const auto ranks = group.all_gather(torch::tensor({group.rank()}));
    for (int r = 0; r < 6; ++r) EXPECT_EQ(ranks[static_cast<std::size_t>(r)].item<int64_t>(), r);
  });
}

// The lines of a grid of replicas, as axes of a topology are: rows within the processes, columns across them.
TEST(Hierarchical, SplitsIntoTheLinesOfAGrid) {
  with_replicas(2, 3, [](Communicator& group) {
    const int row = group.rank() / 3;
    const int column = group.rank() % 3;
    const auto rows = group.split(row, column);
    const auto columns = group.split(column, row);
    ASSERT_EQ(rows->size(), 3);
    ASSERT_EQ(columns->size(), 2);
    EXPECT_EQ(rows->rank(), column);
    EXPECT_EQ(columns->rank(), row);
    torch::Tensor along = torch::tensor({1.0 + group.rank()});
    rows->all_reduce({&along, 1}, ReduceOp::kSum);
    EXPECT_EQ(along.item<double>(), row == 0 ? 1 + 2 + 3 : 4 + 5 + 6);
    columns->all_reduce({&along, 1}, ReduceOp::kMean);
    EXPECT_EQ(along.item<double>(), 10.5);
  });
}

// A group with two ranks of one process and one of another.
TEST(Hierarchical, AGroupMayHaveMoreRanksOfOneProcessThanOfAnother) {
  with_replicas(2, 2, [](Communicator& group) {
    const auto some = group.split(group.rank() == 1 ? -1 : 0, -group.rank());
    ASSERT_EQ(some == nullptr, group.rank() == 1);
    if (!some) return;
    ASSERT_EQ(some->size(), 3);
    EXPECT_EQ(some->rank(), group.rank() == 0 ? 2 : 3 - group.rank());
    testing::check_sums(*some);
    testing::check_copies(*some);
    testing::check_pieces(*some);
    testing::check_messages(*some);
    testing::check_async(*some);
  });
}

TEST(Hierarchical, AsynchronousSumsDoNotGetInTheWayOfOthers) {
  with_process_ranks(2, [&](ProcessCommunicator& world, Membership&) {
    with_ranks(2, [&](Communicator& local) {
      const auto group = make_hierarchical(local, world);
      std::vector<torch::Tensor> sums;
      std::vector<Work<>> works;
      for (int i = 0; i < 20; ++i) {
        works.push_back(group->all_reduce_async({sums.emplace_back(torch::full({1000}, i))}, ReduceOp::kSum));
        // The replicas meet meanwhile, and one of them speaks to the other workers, as in a step.
        local.barrier();
        if (local.rank() == 0) {
          EXPECT_EQ(world.gather_numbers("a step", {i, 0})[1][0], i);
        }
      }
      for (int i = 0; i < 20; ++i) {
        works[static_cast<std::size_t>(i)].wait();
        EXPECT_TRUE(torch::equal(sums[static_cast<std::size_t>(i)], torch::full({1000}, 4 * i)));
      }
    });
  });
}

}  // namespace
}  // namespace cohort::hierarchical_test
