#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/strategy.h"
#include "tests/support/errors.h"
#include "tests/support/workers.h"

namespace cohort::compare_copies_test {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::with_workers;

// Changes the last bit of one number of a replica's weights.
void flip(torch::nn::Linear& module) {
  const torch::NoGradGuard no_grad;
  auto* const number = module->weight.data_ptr<float>() + 3;
  *number = std::nextafter(*number, 10.0F);
}

TEST(CompareCopies, NamesTheReplicaThatDiffers) {
  with_workers({.workers = 3, .replicas = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    auto net = strategy.mirror([] { return torch::nn::Linear(4, 2); });
    compare_copies(net);
    if (strategy.worker_rank() == 1) flip(net[1]);
    EXPECT_THAT(
        error_of<DataLoss>([&] { compare_copies(net); }),
        HasSubstr("the parameters of replica 3 (worker 1) differ from those of most of the other replicas, first "
                  "in \"weight\""));
    if (strategy.worker_rank() == 1) net[1]->weight.set_data(net[0]->weight.clone());
    compare_copies(net);
  });
}

TEST(CompareCopies, SaysWhereThereIsNoMajority) {
  with_workers({.workers = 2, .replicas = 1}, [](const MultiWorkerMirroredStrategy& strategy) {
    auto net = strategy.mirror([] { return torch::nn::Linear(4, 2); });
    if (strategy.worker_rank() == 1) flip(net[0]);
    EXPECT_THAT(
        error_of<DataLoss>([&] { compare_copies(net); }),
        AllOf(HasSubstr("replica 1 (worker 1) differ from those of replica 0"), HasSubstr("nobody knows which")));
  });
}

TEST(CompareCopies, ComparesTheReplicasOfOneProcess) {
  const MirroredStrategy strategy({.devices = cpu_devices(3)});
  auto net = strategy.mirror([] { return torch::nn::Linear(4, 2); });
  compare_copies(net);
  flip(net[2]);
  EXPECT_THAT(error_of<DataLoss>([&] { compare_copies(net); }), HasSubstr("replica 2 (worker 0)"));
  const OneDeviceStrategy alone(cpu_devices(1).front());
  compare_copies(alone.mirror([] { return torch::nn::Linear(4, 2); }));
  EXPECT_THAT(error_of<InvalidArgument>([] { compare_copies(MirroredModule()); }), HasSubstr("refers to no module"));
}

}  // namespace
}  // namespace cohort::compare_copies_test
