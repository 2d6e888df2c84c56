// The arithmetic of levels, and collectives by them between many ranks: sums of the same bits on every rank, which are
// those of the groups' order, and the messages that they take.
#include "collective/algorithms/levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tests/collective/messages.h"
#include "tests/collective/process/conformance.h"

namespace cohort::levels_test {
namespace {

const std::vector<std::string> kAlgorithms = {"direct", "hierarchical", "tree", "auto"};
const std::vector<int> kSizes = {2, 3, 5, 8, 17, 64};

// Every rank is in one group, and every group has a member in each column and at most one more.
TEST(Levels, AreGroupsWithTheSameColumns) {
  for (int ranks = 1; ranks <= 200; ++ranks) {
    for (const int size : {2, 3, 8, 31}) {
      const Level level(ranks, size);
      int next = 0;
      for (int group = 0; group < level.groups(); ++group) {
        for (const int rank : level.group(group)) {
          ASSERT_EQ(rank, next++);
          ASSERT_EQ(level.group_of(rank), group);
          ASSERT_EQ(level.begin(group) + level.index_of(rank), rank);
        }
        ASSERT_GE(level.members(group), level.columns());
        ASSERT_LE(level.members(group), level.columns() + 1);
      }
      ASSERT_EQ(next, ranks);
      ASSERT_GE(level.columns(), level.groups() == 1 ? 1 : size);
    }
  }
}

TEST(Levels, AreThoseOfTheAlgorithm) {
  EXPECT_TRUE(levels_named("direct", 1000).empty());
  EXPECT_TRUE(levels_named("auto", kDirectRanks).empty());
  EXPECT_EQ(levels_named("hierarchical", 64), std::vector<int>{8});
  EXPECT_EQ(levels_named("hierarchical", 1000), std::vector<int>{32});
  EXPECT_EQ(levels_named("tree", 64), (std::vector<int>{2, 2, 2, 2, 2}));
  for (const int ranks : {65, 128, 257, 1024}) {
    const double best = seconds_of_phase(ranks, levels_named("auto", ranks));
    for (const std::string& name : kAlgorithms) EXPECT_LE(best, seconds_of_phase(ranks, levels_named(name, ranks)));
  }
  testing::expect_error<InvalidArgument>([] { levels_named("star", 3); }, "no algorithm \"star\"");
}

// Returns the sum of what ranks have, in the order of the levels.
torch::Tensor sum_of(const std::vector<torch::Tensor>& values, const std::vector<int>& ranks,
                     std::span<const int> levels) {
  const Level level(static_cast<int>(ranks.size()), levels.empty() ? static_cast<int>(ranks.size()) : levels.front());
  const auto add = [&](torch::Tensor sum, int rank) {
    const torch::Tensor& value = values[static_cast<std::size_t>(rank)];
    return sum.defined() ? sum + value : value.clone();
  };
  if (level.groups() == 1) return std::accumulate(ranks.begin(), ranks.end(), torch::Tensor(), add);
  std::vector<torch::Tensor> sums;
  std::vector<int> groups;
  for (int group = 0; group < level.groups(); ++group) {
    std::vector<int> members = level.group(group);
    for (int& member : members) member = ranks[static_cast<std::size_t>(member)];
    sums.push_back(std::accumulate(members.begin(), members.end(), torch::Tensor(), add));
    groups.push_back(group);
  }
  return sum_of(sums, groups, levels.subspan(1));
}

// The tensors of all ranks, whose sums depend on the order.
std::vector<torch::Tensor> values_of_all(int ranks, int64_t count, torch::ScalarType dtype) {
  std::vector<torch::Tensor> values;
  for (int rank = 0; rank < ranks; ++rank) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(rank + 1));
    values.push_back((torch::randn({count}, generator, torch::kFloat) * std::pow(10.0, rank % 4)).to(dtype));
  }
  return values;
}

TEST(Levels, SumsHaveTheSameBitsOnAllRanks) {
  for (const std::string& algorithm : kAlgorithms) {
    for (const int size : kSizes) {
      SCOPED_TRACE(c10::str(algorithm, ", ", size, " ranks"));
      std::vector<int> ranks(static_cast<std::size_t>(size));
      std::iota(ranks.begin(), ranks.end(), 0);
      const std::vector<int> levels = levels_named(algorithm, size);
      for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
        for (const int64_t rows : {1, 3, 300}) {  // a rank's piece; small, and cut in slices
          const std::vector<torch::Tensor> values = values_of_all(size, rows * size, dtype);
          std::vector<torch::Tensor> wide;
          for (const torch::Tensor& value : values) wide.push_back(value.to(torch::kFloat));
          const torch::Tensor wanted = sum_of(wide, ranks, levels).to(dtype);
          testing::with_messages(size, algorithm, [&](ProcessCommunicator& world, const testing::Traffic&) {
            const auto me = static_cast<std::size_t>(world.rank());
            torch::Tensor sum = values[me].clone();
            world.all_reduce({&sum, 1}, ReduceOp::kSum);
            EXPECT_TRUE(torch::equal(sum, wanted)) << dtype << " " << rows;
            const torch::Tensor piece = world.reduce_scatter(values[me], ReduceOp::kSum);
            EXPECT_TRUE(torch::equal(piece, wanted.narrow(0, world.rank() * rows, rows))) << dtype << " " << rows;
          });
        }
      }
    }
  }
}

TEST(Levels, DoWhatACommunicatorMust) {
  for (const char* algorithm : {"hierarchical", "tree"}) {
    for (const int size : {3, 5, 8}) {
      SCOPED_TRACE(c10::str(algorithm, ", ", size, " ranks"));
      testing::with_messages(size, algorithm, [](ProcessCommunicator& world, const testing::Traffic&) {
        testing::check_sums(world);
        testing::check_copies(world);
        testing::check_wrong_calls(world);
        testing::check_pieces(world);
        testing::check_messages(world);
        testing::check_async(world);
        testing::check_split(world);
        world.barrier();
      });
    }
  }
  testing::with_messages(64, "tree", [](ProcessCommunicator& world, const testing::Traffic&) {
    testing::check_copies(world);
    torch::Tensor other = torch::ones({world.rank() == 40 ? 4 : 5});
    testing::expect_error<FailedPrecondition>([&] { world.all_reduce({&other, 1}, ReduceOp::kSum); }, "rank 40 calls");
    world.barrier();
  });
}

// The messages are those of the model, and the bytes hardly more than those of a direct exchange.
TEST(Levels, TakeTheMessagesOfTheModel) {
  constexpr int64_t kCount = 64 * 1024;
  for (const std::string& algorithm : kAlgorithms) {
    for (const int size : {8, 64}) {
      SCOPED_TRACE(c10::str(algorithm, ", ", size, " ranks"));
      const double phase = seconds_of_phase(size, levels_named(algorithm, size), {.message = 1, .latency = 0});
      testing::with_messages(size, algorithm, [&](ProcessCommunicator& world, const testing::Traffic& traffic) {
        world.barrier();
        const int64_t messages = traffic.messages;
        const int64_t bytes = traffic.bytes;
        torch::Tensor sum = torch::ones({kCount});
        world.all_reduce({&sum, 1}, ReduceOp::kSum);
        // Two ranks, and what is small, need no step to give slices back.
        EXPECT_LE(static_cast<double>(traffic.messages - messages), 3 * phase);
        EXPECT_GT(static_cast<double>(traffic.messages - messages), 2 * phase);
        const double least = 2.0 * 4 * kCount * (size - 1) / size;
        EXPECT_GT(static_cast<double>(traffic.bytes - bytes), least);
        EXPECT_LT(static_cast<double>(traffic.bytes - bytes), 1.05 * least);
      });
    }
  }
}

// Returns the seconds that a sum of so many bytes takes between hosts with the costs of docs/performance.md.
double seconds_of_sum(int hosts, const std::string& algorithm, int64_t bytes) {
  constexpr testing::HostCosts kCosts{.message = 29.1e-6, .byte = 0.60e-9, .wire_byte = 8 / 25e9, .latency = 20e-6};
  std::vector<double> seconds(static_cast<std::size_t>(hosts));
  testing::with_messages(
      hosts, algorithm,
      [&](ProcessCommunicator& world, const testing::Traffic& traffic) {
        torch::Tensor sum = torch::ones({bytes / 4});
        world.all_reduce({&sum, 1}, ReduceOp::kSum);
        seconds[static_cast<std::size_t>(world.rank())] = traffic.now;
      },
      kCosts);
  return *std::max_element(seconds.begin(), seconds.end());
}

// What levels save between many hosts, by the code that sends the messages; docs/performance.md has it for more of
// them (COHORT_SIMULATED_HOSTS=1024).
TEST(Levels, SaveTimeBetweenManyHosts) {
  const char* asked = std::getenv("COHORT_SIMULATED_HOSTS");
  const int hosts = asked == nullptr ? 64 : std::atoi(asked);
  std::map<std::string, double> of;
  for (const int64_t bytes : {int64_t{4} << 10, int64_t{940'000}}) {
    for (const std::string& algorithm : kAlgorithms) {
      of[algorithm] = seconds_of_sum(hosts, algorithm, bytes);
      std::printf("%d hosts, %lld bytes, %s: %.2f ms\n", hosts, static_cast<long long>(bytes), algorithm.c_str(),
                  of[algorithm] * 1e3);
    }
    EXPECT_LT(of["hierarchical"], 0.6 * of["direct"]);
    EXPECT_LT(of["tree"], 0.5 * of["direct"]);
  }
}

}  // namespace
}  // namespace cohort::levels_test
