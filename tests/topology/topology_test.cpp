#include "cohort/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::topology_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

DeviceSpec cpu(int task, int index) {
  return DeviceSpec::parse(c10::str("/job:worker/task:", task, "/device:CPU:", index));
}

// Places for `replicas` replicas, of which each process has `per_process`.
std::vector<Topology::Place> places(int replicas, int per_process) {
  std::vector<Topology::Place> list;
  for (int r = 0; r < replicas; ++r) {
    list.push_back({.process = r / per_process, .device = cpu(r / per_process, r % per_process)});
  }
  return list;
}

Topology cube() {
  return {{{"batch", 3}, {"model", 2, AxisRole::kModel}, {"more", 2}}, places(12, 4)};
}

TEST(Topology, AloneIsATopologyToo) {
  const Topology alone;
  EXPECT_EQ(alone.size(), 1);
  EXPECT_EQ(alone.num_processes(), 1);
  EXPECT_EQ(alone.num_replicas_in_sync(), 1);
  EXPECT_THAT(alone.coordinate(0), ElementsAre(0));
  EXPECT_THAT(alone.line("batch", 0), ElementsAre(0));
  EXPECT_EQ(alone.place(0).device.short_form(), "/CPU:0");
  EXPECT_EQ(alone.to_string(), "batch 1; 1 replica in 1 process");
}

TEST(Topology, DataParallelismIsOneAxisOverAllDevices) {
  const Topology topology = Topology::batch({{cpu(0, 0), cpu(0, 1)}, {cpu(1, 0)}});
  EXPECT_THAT(topology.axes(), ElementsAre(Axis{"batch", 3}));
  EXPECT_EQ(topology.num_replicas_in_sync(), 3);
  EXPECT_EQ(topology.num_processes(), 2);
  EXPECT_THAT(topology.replicas_of(0), ElementsAre(0, 1));
  EXPECT_THAT(topology.replicas_of(1), ElementsAre(2));
  EXPECT_THAT(topology.replicas_of(2), ElementsAre());
  EXPECT_EQ(topology.place(2).device, cpu(1, 0));
  EXPECT_THAT(topology.line("batch", 1), ElementsAre(0, 1, 2));
  EXPECT_EQ(topology.to_string(), "batch 3; 3 replicas in 2 processes");
}

TEST(Topology, CoordinatesAndReplicasAreInverse) {
  const Topology topology = cube();
  EXPECT_THAT(topology.coordinate(5), ElementsAre(1, 0, 1));
  for (int r = 0; r < topology.size(); ++r) EXPECT_EQ(topology.replica_at(topology.coordinate(r)), r);
}

TEST(Topology, LinesOfAnAxisDivideTheReplicas) {
  const Topology topology = cube();
  EXPECT_THAT(topology.line("batch", 5), ElementsAre(1, 5, 9));
  EXPECT_THAT(topology.line("model", 5), ElementsAre(5, 7));
  EXPECT_THAT(topology.line("more", 5), ElementsAre(4, 5));
  for (const Axis& axis : topology.axes()) {
    const int lines = topology.size() / axis.size;
    std::vector<int> met(static_cast<std::size_t>(lines));
    for (int r = 0; r < topology.size(); ++r) {
      const std::vector<int> line = topology.line(axis.name, r);
      ASSERT_EQ(line.size(), static_cast<std::size_t>(axis.size));
      EXPECT_EQ(std::count(line.begin(), line.end(), r), 1);
      for (const int other : line)
        EXPECT_EQ(topology.line_number(axis.name, other), topology.line_number(axis.name, r));
      ++met.at(static_cast<std::size_t>(topology.line_number(axis.name, r)));
    }
    EXPECT_THAT(met, ::testing::Each(axis.size)) << axis.name;
  }
}

TEST(Topology, BatchAxesDecideWhoIsInSync) {
  const Topology topology = cube();
  EXPECT_EQ(topology.num_replicas_in_sync(), 6);
  EXPECT_THAT(topology.replicas_in_sync(5), ElementsAre(0, 1, 4, 5, 8, 9));
  EXPECT_THAT(topology.replicas_in_sync(2), ElementsAre(2, 3, 6, 7, 10, 11));
}

TEST(Topology, EqualOnesAreEqual) {
  EXPECT_EQ(cube(), cube());
  EXPECT_NE(cube(), Topology());
}

TEST(Topology, WhatDoesNotFitIsRefused) {
  const auto message = [](const std::vector<Axis>& axes, const std::vector<Topology::Place>& list) {
    return error_of<InvalidArgument>([&] { const Topology topology(axes, list); });
  };
  EXPECT_THAT(message({}, places(1, 1)), HasSubstr("no axes"));
  EXPECT_THAT(message({{"", 1}}, places(1, 1)), HasSubstr("has no name"));
  EXPECT_THAT(message({{"a", 1}, {"a", 1}}, places(1, 1)), HasSubstr("two axes have the name \"a\""));
  EXPECT_THAT(message({{"a", 0}}, {}), HasSubstr("the axis \"a\" has the size 0"));
  EXPECT_THAT(message({{"a", 2}, {"b", 2}}, places(3, 1)), HasSubstr("the places of 3 replicas, the axes have 4"));
  EXPECT_THAT(message({{"a", 2}}, {{.process = 0}, {.process = 2}}), HasSubstr("replica 1 is in process 2"));
  EXPECT_THAT(message({{"a", 1}}, {{.process = 1}}), HasSubstr("replica 0 is in process 1, wanted 0"));
}

TEST(Topology, WhatIsNotThereIsNamed) {
  const Topology topology = cube();
  EXPECT_THAT(error_of<NotFound>([&] { (void)topology.line("rows", 0); }),
              HasSubstr("no axis \"rows\", only batch, model, more"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { (void)topology.coordinate(12); }),
              HasSubstr("no replica 12, only 0 to 11"));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                (void)topology.replica_at({1, 2, 0});
              }),
              HasSubstr("index 2 on the axis \"model\", which has 2 replicas"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { (void)topology.replica_at({1}); }), HasSubstr("1 indices came"));
}

}  // namespace
}  // namespace cohort::topology_test
