// The wings that docs/extending.md adds: the strategy of one, by its class and from the command line, and the
// compression of the other in the list of compressions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/models/experiment.h"
#include "cohort/models/strategy_flags.h"
#include "cohort/parallel/mirrored_groups.h"
#include "cohort/strategy.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort {

void install_neighbours();
void install_int8();

namespace extending_test {
namespace {

// A build with the wing does so itself. Before main(), where the equivalence tests read the table.
[[maybe_unused]] const bool installed = (install_neighbours(), install_int8(), true);

using ::testing::HasSubstr;

TEST(Extending, ReplicasHaveTheirNeighbours) {
  const MirroredGroupsStrategy strategy({.devices = cpu_devices(6), .group_size = 3});
  EXPECT_EQ(strategy.num_replicas_in_sync(), 6);
  EXPECT_EQ(strategy.topology().to_string(), "groups 2, neighbours 3; 6 replicas in 1 process");
  strategy.run([](Replica& replica) {
    const auto sum_over = [&](Communicator& group) {
      torch::Tensor sum = torch::tensor(int64_t{1} << replica.id(), torch::kLong);
      group.all_reduce({&sum, 1}, ReduceOp::kSum);
      return sum.item<int64_t>();
    };
    EXPECT_EQ(sum_over(replica.group("neighbours")), replica.id() < 3 ? 0b000111 : 0b111000);
    EXPECT_EQ(sum_over(replica.group("groups")), 0b001001 << (replica.id() % 3));
    EXPECT_EQ(sum_over(replica.communicator()), 0b111111);
  });
}

TEST(Extending, UnevenGroupsAreRefused) {
  for (const int size : {0, 2}) {
    testing::expect_error<InvalidArgument>(
        [&] { (void)MirroredGroupsStrategy({.devices = cpu_devices(3), .group_size = size}); },
        c10::str("mirrored_groups: group_size is ", size, ", wanted a divisor of the 3 replicas"));
  }
}

int train(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "train");
  std::vector<char*> arguments;
  for (std::string& flag : flags) arguments.push_back(flag.data());
  return train_main(static_cast<int>(arguments.size()), arguments.data());
}

TEST(Extending, TheCommandLineKnowsItsName) {
  const testing::TemporaryFolder folder;
  const auto weights_under = [&](const std::string& name) {
    const std::filesystem::path run = folder / name;
    EXPECT_EQ(train({"--experiment=mnist_mlp", "--distribution_strategy=" + name, "--num_replicas=2", "--train_steps=5",
                     "--batch_size=32", "--mode=train", "--all_reduce_alg=reduction_to_one_device",
                     "--model_dir=" + run.string()}),
              0);
    return testing::read_file(run / "model.safetensors");
  };
  const std::string weights = weights_under("mirrored_groups");
  EXPECT_GT(weights.size(), 100'000U);
  EXPECT_EQ(weights, weights_under("mirrored"));
}

// The name is in what the table makes, and no written list of names has to follow.
TEST(Extending, TheTableIsTheOnlyList) {
  StrategyFlags flags;
  const Config config([&](ConfigFields& fields) { flags.describe(fields); });
  EXPECT_THAT(config.help(), HasSubstr("central_storage, tpu, xla, mirrored_groups"));
  EXPECT_THAT(config.help(), HasSubstr("power_sgd, int8"));
  for (const ConfigFields::Field& field : config.fields()) EXPECT_THAT(field.help, Not(HasSubstr("mirrored_groups")));
  testing::expect_error<InvalidArgument>([] { (void)make_strategy({.distribution_strategy = "pigeons"}); },
                                         "tpu, xla, mirrored_groups");
  testing::expect_error<InvalidArgument>(
      [] { (void)make_strategy({.distribution_strategy = "central_storage", .num_packs = 2}); },
      "only under mirrored, multi_worker_mirrored and mirrored_groups");
}

}  // namespace
}  // namespace extending_test
}  // namespace cohort
