// The cores that TensorFlow's device_assignment() gives for the same arguments, and where cores are in a mesh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/cluster/tpu_topology.h"
#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::device_assignment_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

// Returns a full mesh, of which each task has so many cores, in the order of the places.
TpuTopology mesh(const std::vector<int64_t>& shape, std::size_t cores_per_task) {
  std::vector<TpuCoordinates> places{{}};
  for (const int64_t size : shape) {
    std::vector<TpuCoordinates> longer;
    for (const TpuCoordinates& place : places) {
      for (int64_t i = 0; i < size; ++i) {
        longer.push_back(place);
        longer.back().push_back(i);
      }
    }
    places = longer;
  }
  std::vector<std::vector<TpuCoordinates>> tasks;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (i % cores_per_task == 0) tasks.emplace_back();
    tasks.back().push_back(places[i]);
  }
  return {shape, tasks};
}

// Returns the first core of every replica.
std::vector<TpuCoordinates> firsts(const DeviceAssignment& assignment) {
  std::vector<TpuCoordinates> list;
  for (const auto& replica : assignment.core_assignment()) list.push_back(replica.front());
  return list;
}

TEST(TpuTopology, KnowsWhereItsCoresAre) {
  const TpuTopology topology = mesh({2, 2, 1, 2}, 4);
  EXPECT_EQ(topology.mesh_rank(), 4);
  EXPECT_EQ(topology.num_tasks(), 2);
  EXPECT_EQ(topology.num_tpus_per_task(), 4);
  EXPECT_EQ(topology.task_ordinal_at_coordinates({1, 0, 0, 1}), 1);
  EXPECT_EQ(topology.tpu_device_ordinal_at_coordinates({1, 0, 0, 1}), 1);
  EXPECT_TRUE(topology.missing_devices().empty());
  EXPECT_THAT(error_of<NotFound>([&] {
                topology.task_ordinal_at_coordinates({2, 0, 0, 0});
              }),
              HasSubstr("there is no core at [2,0,0,0] in a mesh of [2,2,1,2]"));
  const TpuTopology part({2, 1, 1, 2}, {{{0, 0, 0, 0}, {1, 0, 0, 1}}});
  EXPECT_THAT(part.missing_devices(), ElementsAre(TpuCoordinates{0, 0, 0, 1}, TpuCoordinates{1, 0, 0, 0}));
  EXPECT_THROW(part.tpu_device_ordinal_at_coordinates({1, 0, 0, 0}), NotFound);
}

TEST(TpuTopology, RefusesWhatIsNoMesh) {
  EXPECT_THAT(error_of<InvalidArgument>([] {
                TpuTopology({1, 0}, {{{0, 0}}});
              }),
              HasSubstr("mesh_shape is [1,0], wanted sizes of 1 or more"));
  EXPECT_THAT(error_of<InvalidArgument>([] { TpuTopology({1}, {}); }), HasSubstr("got no cores"));
  EXPECT_THAT(error_of<InvalidArgument>([] { TpuTopology({2}, {{{0}, {0}}}); }), HasSubstr("two cores are at [0]"));
  EXPECT_THAT(error_of<InvalidArgument>([] {
                TpuTopology({2}, {{{0}, {2}}});
              }),
              HasSubstr("core 1 of task 0 is at [2], wanted coordinates in a mesh of [2]"));
  EXPECT_THAT(error_of<InvalidArgument>([] { TpuTopology({2}, {{{0, 0}}}); }), HasSubstr("is at [0,0]"));
  EXPECT_THAT(error_of<InvalidArgument>([] {
                TpuTopology({3}, {{{0}, {1}}, {{2}}});
              }),
              HasSubstr("task 1 has 1 cores and task 0 has 2"));
}

TEST(DeviceAssignment, PrefersTheCoresOfAChip) {
  const auto one = DeviceAssignment::build(mesh({2, 2, 2, 2}, 8));
  EXPECT_EQ(one.num_replicas(), 1);
  EXPECT_EQ(one.num_cores_per_replica(), 1);
  EXPECT_THAT(one.coordinates(0), ElementsAre(0, 0, 0, 0));
  const auto four = DeviceAssignment::build(mesh({2, 2, 2, 2}, 8), {.num_replicas = 4});
  EXPECT_THAT(firsts(four), ElementsAre(TpuCoordinates{0, 0, 0, 0}, TpuCoordinates{0, 0, 0, 1},
                                        TpuCoordinates{1, 0, 0, 0}, TpuCoordinates{1, 0, 0, 1}));
  EXPECT_THAT(four.lookup_replicas(0), ElementsAre(0, 1));
  EXPECT_THAT(four.lookup_replicas(1), ElementsAre(2, 3));
  EXPECT_EQ(four.tpu_ordinal(3), 1);
  EXPECT_EQ(four.task_ordinal(3), 1);
}

TEST(DeviceAssignment, IsNearlyACube) {
  const auto eight = DeviceAssignment::build(mesh({4, 4, 1, 1}, 4), {.num_replicas = 8});
  EXPECT_THAT(firsts(eight),
              ElementsAre(TpuCoordinates{0, 0, 0, 0}, TpuCoordinates{1, 0, 0, 0}, TpuCoordinates{2, 0, 0, 0},
                          TpuCoordinates{0, 1, 0, 0}, TpuCoordinates{1, 1, 0, 0}, TpuCoordinates{2, 1, 0, 0},
                          TpuCoordinates{0, 2, 0, 0}, TpuCoordinates{1, 2, 0, 0}));
}

TEST(DeviceAssignment, ReplicasAreBlocksWithAStride) {
  const auto blocks =
      DeviceAssignment::build(mesh({2, 2, 1, 2}, 8), {.computation_shape = {1, 2, 1, 2}, .num_replicas = 1});
  EXPECT_THAT(blocks.core_assignment()[0], ElementsAre(TpuCoordinates{0, 0, 0, 0}, TpuCoordinates{0, 0, 0, 1},
                                                       TpuCoordinates{0, 1, 0, 0}, TpuCoordinates{0, 1, 0, 1}));
  const auto apart = DeviceAssignment::build(
      mesh({4, 1, 1, 2}, 8),
      {.computation_shape = {2, 1, 1, 1}, .computation_stride = {2, 1, 1, 1}, .num_replicas = 4});
  EXPECT_THAT(apart.core_assignment()[1], ElementsAre(TpuCoordinates{0, 0, 0, 1}, TpuCoordinates{2, 0, 0, 1}));
  EXPECT_THAT(apart.core_assignment()[2], ElementsAre(TpuCoordinates{1, 0, 0, 0}, TpuCoordinates{3, 0, 0, 0}));
}

TEST(DeviceAssignment, WholeChipsFollowARing) {
  const auto ring =
      DeviceAssignment::build(mesh({4, 4, 1, 2}, 8), {.computation_shape = {1, 1, 1, 2}, .num_replicas = 16});
  std::vector<std::vector<int>> order(4, std::vector<int>(4, -1));  // [y][x]
  for (int replica = 0; replica < 16; ++replica) {
    const TpuCoordinates& core = ring.coordinates(replica, 0);
    order[static_cast<std::size_t>(core[1])][static_cast<std::size_t>(core[0])] = replica;
    EXPECT_EQ(ring.coordinates(replica, 1), (TpuCoordinates{core[0], core[1], core[2], 1}));
  }
  EXPECT_THAT(order, ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(15, 6, 5, 4), ElementsAre(14, 7, 8, 9),
                                 ElementsAre(13, 12, 11, 10)));
}

// Neighbours in a ring are neighbours in the mesh, or its two ends.
TEST(DeviceAssignment, ARingOfThreeDimensionsHasNeighbours) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 4, 2, 2}, {1, 4, 2, 2}, {4, 1, 2, 2}}) {
    const int count = static_cast<int>(shape[0] * shape[1] * shape[2]);
    const auto ring =
        DeviceAssignment::build(mesh(shape, 2), {.computation_shape = {1, 1, 1, 2}, .num_replicas = count});
    for (int replica = 0; replica < count; ++replica) {
      const TpuCoordinates& here = ring.coordinates(replica);
      const TpuCoordinates& next = ring.coordinates((replica + 1) % count);
      int64_t distance = 0;
      for (std::size_t i = 0; i < 3; ++i) distance += std::abs(here[i] - next[i]);
      EXPECT_EQ(distance, 1) << replica;
    }
  }
}

TEST(DeviceAssignment, AMeshWithMissingCoresIsTakenInTheOrderOfTasks) {
  const TpuTopology part({2, 2, 1, 1}, {{{0, 0, 0, 0}}, {{1, 1, 0, 0}}, {{0, 1, 0, 0}}});
  const auto three = DeviceAssignment::build(part, {.num_replicas = 3});
  EXPECT_THAT(firsts(three),
              ElementsAre(TpuCoordinates{0, 0, 0, 0}, TpuCoordinates{1, 1, 0, 0}, TpuCoordinates{0, 1, 0, 0}));
  EXPECT_THAT(error_of<InvalidArgument>([&] { DeviceAssignment::build(part, {.num_replicas = 4}); }),
              HasSubstr("num_replicas is 4, but of 3 cores only 3 replicas of 1 cores can be made"));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                DeviceAssignment::build(part, {.computation_stride = {2, 1, 1, 1}});
              }),
              HasSubstr("but the mesh lacks 1 cores"));
}

TEST(DeviceAssignment, BlocksForSpatialPartitioning) {
  const TpuTopology two_cores_a_chip = mesh({4, 4, 1, 2}, 8);
  EXPECT_THAT(computation_shape_of(two_cores_a_chip, 1), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(computation_shape_of(two_cores_a_chip, 2), ElementsAre(1, 1, 1, 2));
  EXPECT_THAT(computation_shape_of(two_cores_a_chip, 4), ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(computation_shape_of(two_cores_a_chip, 8), ElementsAre(2, 2, 1, 2));
  EXPECT_THAT(computation_shape_of(two_cores_a_chip, 16), ElementsAre(4, 2, 1, 2));
  EXPECT_THAT(computation_shape_of(mesh({2, 2, 1, 1}, 4), 4), ElementsAre(2, 2, 1, 1));  // v5e: a core a chip
  EXPECT_THAT(computation_shape_of(mesh({4, 4, 1, 1}, 8), 8), ElementsAre(2, 4, 1, 1));
  EXPECT_THAT(computation_shape_of(mesh({8, 1, 1, 1}, 8), 3), ElementsAre(3, 1, 1, 1));
  EXPECT_THAT(error_of<InvalidArgument>([] {
                computation_shape_of(mesh({2, 2, 1, 1}, 4), 3);
              }),
              HasSubstr("3 cores a replica are wanted, and no block of so many fits into a mesh of [2,2,1,1]"));
  EXPECT_THROW(computation_shape_of(mesh({2, 2, 1, 1}, 4), 0), InvalidArgument);
}

TEST(DeviceAssignment, RefusesWhatDoesNotFit) {
  const TpuTopology topology = mesh({2, 2, 1, 2}, 8);
  const auto refusal = [&](const DeviceAssignmentOptions& options) {
    return error_of<InvalidArgument>([&] { DeviceAssignment::build(topology, options); });
  };
  EXPECT_THAT(refusal({.computation_shape = {1, 1}}), HasSubstr("computation_shape is [1,1], wanted 4 sizes"));
  EXPECT_THAT(refusal({.computation_stride = {1, 0, 1, 1}}), HasSubstr("computation_stride is [1,0,1,1]"));
  EXPECT_THAT(refusal({.computation_shape = {2, 1, 1, 1}, .computation_stride = {2, 1, 1, 1}}),
              HasSubstr("does not fit into a mesh of [2,2,1,2]"));
  EXPECT_THAT(refusal({.computation_shape = {1, 2, 1, 2}, .num_replicas = 3}),
              HasSubstr("num_replicas is 3, but only 2 replicas of computation_shape [1,2,1,2]"));
  EXPECT_THAT(refusal({.num_replicas = 0}), HasSubstr("num_replicas is 0"));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                DeviceAssignment(topology, {{{0, 0, 0, 0}}, {{0, 0, 0, 0}}});
              }),
              HasSubstr("the core at [0,0,0,0] is assigned twice"));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                DeviceAssignment(topology, {{{0, 0, 0, 0}}, {}});
              }),
              HasSubstr("replica 1 has 0 cores and replica 0 has 1"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { DeviceAssignment(topology, {}); }), HasSubstr("got no cores"));
  EXPECT_THROW(DeviceAssignment(topology, {{{0, 0, 0, 2}}}), NotFound);
  const auto one = DeviceAssignment::build(topology);
  EXPECT_THAT(error_of<InvalidArgument>([&] { one.coordinates(0, 1); }),
              HasSubstr("got the logical core 1 of replica 0, there are 1 replicas of 1 cores"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { one.lookup_replicas(1); }), HasSubstr("got the task 1, there are 1"));
}

}  // namespace
}  // namespace cohort::device_assignment_test
