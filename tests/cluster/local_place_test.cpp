#include "cluster/local_place.h"

#include <gtest/gtest.h>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::local_place_test {
namespace {

using testing::expect_error;
using Variables = std::map<std::string, std::string>;
using Gpus = std::vector<int>;

LocalPlace place_of(Variables variables) {
  return local_place(environment_of(std::move(variables)));
}

TEST(LocalPlace, IsWhatTheLauncherTells) {
  const auto expect = [](const Variables& variables, int rank, int size) {
    const LocalPlace place = place_of(variables);
    EXPECT_EQ(place.rank, rank);
    EXPECT_EQ(place.size, size);
  };
  expect({}, 0, 1);
  expect({{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}, 2, 4);
  expect({{"LOCAL_RANK", "2"}}, 2, 0);
  expect({{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"SLURM_LOCALID", "0"}}, 1, 2);
  expect({{"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "3"}}, 1, 3);
  expect({{"MV2_COMM_WORLD_LOCAL_RANK", "1"}, {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}}, 1, 2);
  expect({{"PALS_LOCAL_RANKID", "3"}, {"PALS_LOCAL_SIZE", "4"}}, 3, 4);
  const Variables step = {{"SLURM_STEP_NUM_TASKS", "5"},
                          {"SLURM_STEP_TASKS_PER_NODE", "1,2(x2)"},
                          {"SLURM_NODEID", "2"},
                          {"SLURM_LOCALID", "1"}};
  expect(step, 1, 2);
  expect({{"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}}, 0, 1);
  expect_error<InvalidArgument>([] { place_of({{"LOCAL_RANK", "x"}}); }, "LOCAL_RANK is \"x\"");
  expect_error<InvalidArgument>(
      [] {
        place_of({{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}});
      },
      "LOCAL_RANK is 2 and LOCAL_WORLD_SIZE is 2");
}

TEST(LocalPlace, WorkersOfAMachineTakeDifferentGpus) {
  EXPECT_EQ(gpus_of_worker(2, 1, {.rank = 0, .size = 2}), Gpus{0});
  EXPECT_EQ(gpus_of_worker(2, 1, {.rank = 1, .size = 2}), Gpus{1});
  EXPECT_EQ(gpus_of_worker(8, 2, {.rank = 3, .size = 4}), (Gpus{6, 7}));
  EXPECT_EQ(gpus_of_worker(8, 1, {.rank = 3, .size = 0}), Gpus{3}) << "how many workers there are is not told";
  EXPECT_EQ(gpus_of_worker(8, 2, {}), (Gpus{0, 1})) << "the only worker";
}

TEST(LocalPlace, AnEvenPartWhereNothingIsSaid) {
  EXPECT_EQ(gpus_of_worker(4, 0, {}), (Gpus{0, 1, 2, 3}));
  EXPECT_EQ(gpus_of_worker(4, 0, {.rank = 1, .size = 2}), (Gpus{2, 3}));
  EXPECT_EQ(gpus_of_worker(3, 0, {.rank = 1, .size = 2}), Gpus{1});
  EXPECT_EQ(gpus_of_worker(0, 0, {.rank = 1, .size = 2}), Gpus{});
}

TEST(LocalPlace, GpusThatTheLauncherGaveAWorkerAreItsOwn) {
  EXPECT_EQ(gpus_of_worker(1, 1, {.rank = 3, .size = 4}), Gpus{0});
  EXPECT_EQ(gpus_of_worker(2, 2, {.rank = 1, .size = 2}), (Gpus{0, 1}));
  EXPECT_EQ(gpus_of_worker(1, 0, {.rank = 1, .size = 2}), Gpus{0});
  EXPECT_EQ(gpus_of_worker(0, 2, {.rank = 1, .size = 2}), (Gpus{0, 1})) << "that they are not there is said elsewhere";
}

TEST(LocalPlace, TooFewForAllIsAnError) {
  expect_error<InvalidArgument>([] { gpus_of_worker(3, 2, {.rank = 0, .size = 2}); },
                                "2 workers on this machine want 2 GPUs each, but 3 are visible to worker 0");
  expect_error<InvalidArgument>([] { gpus_of_worker(3, 1, {.rank = 3, .size = 0}); }, "4 workers on this machine");
}

}  // namespace
}  // namespace cohort::local_place_test
