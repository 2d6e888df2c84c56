#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "tests/collective/process/conformance.h"
#include "tests/support/process_ranks.h"

namespace cohort::shared_sum_test {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ProcessRanksOptions;
using testing::with_process_ranks;

TEST(SharedSum, NeedsNoMessagesOnOneMachine) {
  with_process_ranks(3, [](ProcessCommunicator& world, Membership&) {
    torch::Tensor sums = world.shared_zeros(100, torch::kFloat).fill_(1);
    world.all_reduce({&sums, 1}, ReduceOp::kSum);
    EXPECT_THAT(world.recorder().dump(), HasSubstr("all_reduce SUM of Float[100] in shared memory collective/1 at 0"));
    EXPECT_TRUE(torch::equal(sums, torch::full({100}, 3.0F)));
  });
}

TEST(SharedSum, DoesWithMessagesWhereItHasTo) {
  const auto expect_messages = [](ProcessCommunicator& world, Membership&) {
    testing::check_shared_sums(world);
    EXPECT_THAT(world.recorder().dump(), AllOf(HasSubstr("all_reduce"), Not(HasSubstr("in shared memory"))));
  };
  with_process_ranks(3, {.shared_memory = false}, expect_messages);
  with_process_ranks(3, {.machines = {"a", "b", "c"}}, expect_messages);

  // The system refuses the memory.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  with_process_ranks(3, expect_messages);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_DFL);
}

TEST(SharedSum, GoesFromMachineToMachineOnce) {
  with_process_ranks(4, {.machines = {"a", "a", "b", "b"}}, [](ProcessCommunicator& world, Membership&) {
    testing::check_shared_sums(world);
    EXPECT_THAT(world.recorder().dump(), HasSubstr("in shared memory"));
  });
  // Sums go within a machine first; one of the machines has a single rank.
  with_process_ranks(5, {.machines = {"a", "b", "a", "b", "c"}}, [](ProcessCommunicator& world, Membership&) {
    testing::check_shared_sums(world);
    std::vector<torch::Tensor> values;
    for (int rank = 0; rank < 5; ++rank) {
      auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(rank));
      values.push_back(torch::randn({70'000}, generator, torch::kFloat) * std::pow(10.0, rank));
    }
    torch::Tensor sums = world.shared_zeros(70'000, torch::kFloat);
    sums.copy_(values[static_cast<std::size_t>(world.rank())]);
    world.all_reduce({&sums, 1}, ReduceOp::kSum);
    EXPECT_TRUE(torch::equal(sums, ((values[0] + values[2]) + (values[1] + values[3])) + values[4]));
  });
}

// The first ranks of five machines: a pair, and a group of three.
TEST(SharedSum, GoesBetweenMachinesByLevels) {
  const ProcessRanksOptions options{.machines = {"a", "a", "b", "c", "d", "e"}, .algorithm = "tree"};
  with_process_ranks(6, options, [](ProcessCommunicator& world, Membership&) {
    std::vector<torch::Tensor> values;
    for (int rank = 0; rank < 6; ++rank) {
      auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(rank));
      values.push_back(torch::randn({70'000}, generator, torch::kFloat) * std::pow(10.0, rank));
    }
    torch::Tensor sums = world.shared_zeros(70'000, torch::kFloat);
    sums.copy_(values[static_cast<std::size_t>(world.rank())]);
    world.all_reduce({&sums, 1}, ReduceOp::kSum);
    const torch::Tensor a = values[0] + values[1];
    EXPECT_TRUE(torch::equal(sums, (a + values[2]) + ((values[3] + values[4]) + values[5])));
  });
}

// Nothing is rounded within a machine; between machines the sum of each is, and then that of all.
TEST(SharedSum, IsRoundedForOtherMachinesAlone) {
  std::vector<torch::Tensor> values;
  for (int rank = 0; rank < 3; ++rank) {
    values.push_back(
        torch::randn({70'000}, at::detail::createCPUGenerator(static_cast<uint64_t>(rank)), torch::kFloat));
  }
  const auto rounded = [](const torch::Tensor& sum) { return sum.to(torch::kBFloat16).to(torch::kFloat); };
  const torch::Tensor exact = (values[0] + values[1]) + values[2];
  const torch::Tensor between = rounded(rounded(values[0] + values[1]) + rounded(values[2]));
  for (const auto& [machines, expected] :
       {std::pair(std::vector<std::string>{}, exact), std::pair(std::vector<std::string>{"a", "a", "b"}, between)}) {
    with_process_ranks(3, {.machines = machines}, [&, &wanted = expected](ProcessCommunicator& world, Membership&) {
      torch::Tensor sums = world.shared_zeros(70'000, torch::kFloat, torch::kBFloat16);
      EXPECT_TRUE(world.adds_in_memory(sums.slice(0, 5, 9)));
      sums.copy_(values[static_cast<std::size_t>(world.rank())]);
      world.all_reduce({&sums, 1}, ReduceOp::kSum);
      EXPECT_TRUE(torch::equal(sums, wanted));
    });
  }
}

TEST(SharedSum, OtherPartsOrOtherMemoryAreAMismatch) {
  with_process_ranks(2, [](ProcessCommunicator& world, Membership&) {
    const torch::Tensor first = world.shared_zeros(20, torch::kFloat);
    const torch::Tensor second = world.shared_zeros(20, torch::kFloat);
    torch::Tensor part = first.slice(0, world.rank(), 10 + world.rank());
    EXPECT_THAT(
        error_of<FailedPrecondition>([&] {
          world.all_reduce({&part, 1}, ReduceOp::kSum);
        }),
        AllOf(HasSubstr("in shared memory collective/1 at 0"), HasSubstr("in shared memory collective/1 at 1")));
    torch::Tensor whole = world.rank() == 0 ? first : second;
    EXPECT_THAT(error_of<FailedPrecondition>([&] {
                  world.all_reduce({&whole, 1}, ReduceOp::kSum);
                }),
                AllOf(HasSubstr("collective/1 at 0"), HasSubstr("collective/2 at 0")));
    torch::Tensor elsewhere = world.rank() == 0 ? first : torch::zeros({20});
    EXPECT_THAT(error_of<FailedPrecondition>([&] {
                  world.all_reduce({&elsewhere, 1}, ReduceOp::kSum);
                }),
                HasSubstr("worker 1 calls all_reduce SUM of Float[20]"));
  });
}

// Returns the number of mappings of all ranks, which are threads of this process.
int64_t mappings() {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("/memfd:cohort") != std::string::npos ? 1 : 0;
  return count;
}

TEST(SharedSum, MemoryStaysAsLongAsItsTensors) {
  std::vector<torch::Tensor> kept(2);
  with_process_ranks(2, [&](ProcessCommunicator& world, Membership&) {
    torch::Tensor& own = kept[static_cast<std::size_t>(world.rank())];
    own = world.shared_zeros(10, torch::kDouble).fill_(1);
    for (int i = 0; i < 20; ++i) {
      torch::Tensor sums = world.shared_zeros(1000, torch::kDouble).fill_(i);
      world.all_reduce({&sums, 1}, ReduceOp::kSum);
      EXPECT_EQ(sums[5].item<double>(), 2.0 * i);
      EXPECT_LE(mappings(), 2 * 3) << "own, sums, and those of the round before";
    }
    world.all_reduce({&own, 1}, ReduceOp::kSum);
  });
  EXPECT_EQ(mappings(), 2);
  for (const torch::Tensor& own : kept) EXPECT_TRUE(torch::equal(own, torch::full({10}, 2.0, torch::kDouble)));
  kept.clear();
  EXPECT_EQ(mappings(), 0);
}

}  // namespace
}  // namespace cohort::shared_sum_test
