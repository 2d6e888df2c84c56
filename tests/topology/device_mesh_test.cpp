#include "cohort/device_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::device_mesh_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

// Names the CPUs of tasks of the job worker.
std::vector<std::string> workers(int tasks, int each) {
  std::vector<std::string> names;
  for (int task = 0; task < tasks; ++task) {
    for (int cpu = 0; cpu < each; ++cpu) names.push_back(c10::str("/job:worker/task:", task, "/device:CPU:", cpu));
  }
  return names;
}

std::vector<std::string> short_names(const std::vector<DeviceSpec>& devices) {
  std::vector<std::string> names;
  for (const DeviceSpec& device : devices) names.push_back(c10::str(*device.task, ":", *device.index));
  return names;
}

TEST(DeviceMesh, LaysDevicesOutInTheOrderOfItsAxes) {
  const DeviceMesh mesh({2, 4}, {"batch", "model"}, cpu_devices(8));
  EXPECT_EQ(mesh.size(), 8);
  EXPECT_EQ(mesh.num_replicas_in_sync(), 2);
  EXPECT_EQ(mesh.to_string(), "batch 2 x model 4");
  EXPECT_THAT(mesh.axes(), ElementsAre(Axis{"batch", 2}, Axis{"model", 4, AxisRole::kModel}));
  EXPECT_EQ(mesh.device({1, 2}).short_form(), "/CPU:6");
  EXPECT_THAT(mesh.coordinate(DeviceSpec::parse("/CPU:6")), ElementsAre(1, 2));
  EXPECT_THAT(short_names(mesh.groups("batch")[1]), ElementsAre("0:1", "0:5"));
  EXPECT_THAT(short_names(mesh.groups("model")[1]), ElementsAre("0:4", "0:5", "0:6", "0:7"));
  EXPECT_EQ(mesh.topology().num_processes(), 1);
}

TEST(DeviceMesh, TheReplicasInSyncAreTheBatchAxes) {
  const DeviceMesh mesh({2, 2, 2}, {"replica", "stage", "batch"}, cpu_devices(8));
  EXPECT_EQ(mesh.num_replicas_in_sync(), 4);
  const DeviceMesh own({2, 3}, {"a", "b"}, cpu_devices(6), {.roles = {AxisRole::kBatch, AxisRole::kSpace}});
  EXPECT_EQ(own.num_replicas_in_sync(), 2);
}

TEST(DeviceMesh, HeavyAxesStayInATaskWhateverTheOrderOfTheNames) {
  for (const bool model_first : {false, true}) {
    const DeviceMesh mesh = model_first ? DeviceMesh({4, 2}, {"model", "batch"}, workers(2, 4))
                                        : DeviceMesh({2, 4}, {"batch", "model"}, workers(2, 4));
    EXPECT_FALSE(mesh.crosses_tasks("model"));
    EXPECT_TRUE(mesh.crosses_tasks("batch"));
    EXPECT_EQ(mesh.topology().num_processes(), 2);
    EXPECT_EQ(mesh.topology().axes().back().name, "model");
    // A line of the model is a task's devices.
    EXPECT_THAT(short_names(mesh.groups("model")[1]), ElementsAre("1:0", "1:1", "1:2", "1:3"));
    const Coordinate at = mesh.coordinate(DeviceSpec::parse("/job:worker/task:1/CPU:3"));
    EXPECT_EQ(at, (model_first ? Coordinate{3, 1} : Coordinate{1, 3}));
  }
  const DeviceMesh four({2, 2, 2, 2}, {"model", "batch", "space", "stage"}, workers(2, 8));
  std::vector<std::string> order;
  for (const Axis& axis : four.topology().axes()) order.push_back(axis.name);
  EXPECT_THAT(order, ElementsAre("stage", "batch", "space", "model"));
  EXPECT_TRUE(four.crosses_tasks("stage"));
  for (const char* axis : {"batch", "space", "model"}) EXPECT_FALSE(four.crosses_tasks(axis)) << axis;
}

TEST(DeviceMesh, TakesDevicesByTaskAndTheChiefFirst) {
  const DeviceMesh mesh(
      {4}, {"batch"},
      {"/job:worker/task:1/CPU:0", "/job:worker/task:0/CPU:1", "/job:worker/task:0/CPU:0", "/job:chief/task:0/CPU:0"});
  std::vector<std::string> jobs;
  for (const DeviceSpec& device : mesh.devices()) jobs.push_back(*device.job + std::to_string(*device.task));
  EXPECT_THAT(jobs, ElementsAre("chief0", "worker0", "worker0", "worker1"));
  EXPECT_EQ(*mesh.device({1}).index, 1) << "within a task the order is the one given";
  EXPECT_EQ(mesh.topology().num_processes(), 3);
  EXPECT_THAT(short_names(mesh.devices_of("worker", 0)), ElementsAre("0:1", "0:0"));
}

TEST(DeviceMesh, AnOpenAxisIsWhatTheDevicesLeave) {
  const DeviceMesh mesh({-1, 3}, {"batch", "model"}, cpu_devices(12));
  EXPECT_EQ(mesh.axes()[0].size, 4);
  EXPECT_THAT(error_of<InvalidArgument>([] {
                DeviceMesh({-1, 5}, {"batch", "model"}, cpu_devices(12));
              }),
              HasSubstr("the axis \"batch\" is to have what 12 devices leave, but the other axes"));
  EXPECT_THAT(error_of<InvalidArgument>([] {
                DeviceMesh({-1, -1}, {"batch", "model"}, cpu_devices(4));
              }),
              HasSubstr("\"batch\" and \"model\" both have the size -1"));
}

TEST(DeviceMesh, WithoutDevicesItTakesAsManyCpusAsItHasPlaces) {
  if (!list_logical_devices("GPU").empty()) GTEST_SKIP() << "there are GPUs here, which it takes";
  EXPECT_EQ(DeviceMesh({3, 2}, {"batch", "model"}).size(), 6);
  EXPECT_THAT(error_of<InvalidArgument>([] {
                DeviceMesh({-1, 2}, {"batch", "model"});
              }),
              HasSubstr("the axis \"batch\" has the size -1, but no devices came"));
}

TEST(DeviceMesh, PartsAreMeshes) {
  const DeviceMesh mesh({2, 3, 2}, {"model", "batch", "replica"}, workers(2, 6));
  const DeviceMesh part = mesh.submesh({{"model", 1}});
  EXPECT_EQ(part.to_string(), "batch 3 x replica 2");
  for (int b = 0; b < 3; ++b) {
    for (int r = 0; r < 2; ++r) EXPECT_EQ(part.device({b, r}), mesh.device({1, b, r}));
  }
  const DeviceMesh line = mesh.submesh({{"replica", 1}, {"model", 0}});
  EXPECT_EQ(line.to_string(), "batch 3");
  for (int b = 0; b < 3; ++b) EXPECT_EQ(line.device({b}), mesh.device({0, b, 1}));
  EXPECT_EQ(mesh.submesh({}), mesh);
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                (void)mesh.submesh({{"batch", 3}});
              }),
              HasSubstr("index 3 on the axis \"batch\", wanted 0 to 2"));
  EXPECT_THAT(error_of<NotFound>([&] { (void)mesh.submesh({{"rows", 0}}); }), HasSubstr("there is no axis \"rows\""));
  EXPECT_THAT(error_of<InvalidArgument>([&] { (void)line.submesh({{"batch", 0}}); }), HasSubstr("every axis"));
}

TEST(DeviceMesh, WrongMeshesSayWhatWouldFit) {
  const auto refused = [](std::vector<int> sizes, const std::vector<std::string>& names, int devices,
                          const std::string& words, const DeviceMeshOptions& options = {}) {
    EXPECT_THAT(error_of<InvalidArgument>([&] { DeviceMesh(sizes, names, cpu_devices(devices), options); }),
                HasSubstr(words));
  };
  refused({2, 4}, {"batch", "model"}, 6,
          "the axes batch 2 x model 4 have 8 places, but 6 devices came; model 3 would fit, with the other sizes");
  refused({2, 3}, {"batch", "model"}, 12, "batch 4 or model 6 would fit");
  refused({2, 4}, {"batch", "model"}, 7, "no size of a single axis would fit: wanted sizes whose product is 7");
  refused({2}, {"batch", "model"}, 2, "got 1 sizes and 2 names of axes");
  refused({}, {}, 2, "at least one axis");
  refused({0}, {"batch"}, 2, "the axis \"batch\" has the size 0, wanted 1 or more");
  refused({1, 2}, {"batch", "batch"}, 2, "two axes have the name \"batch\"");
  refused({1, 2}, {"batch", ""}, 2, "axis 1 has an empty name");
  refused({1, 2}, {"batch", "rows"}, 2, "the name of the axis \"rows\" does not say what it divides");
  refused({1, 2}, {"batch", "rows"}, 2, "got 1 roles for the 2 axes batch, rows", {.roles = {AxisRole::kBatch}});
  EXPECT_THAT(error_of<InvalidArgument>([] {
                DeviceMesh({2}, {"batch"}, {"/CPU:0", "/CPU:0"});
              }),
              HasSubstr("CPU:0 is there twice"));
}

TEST(DeviceMesh, UnknownPlacesAreNamed) {
  const DeviceMesh mesh({2, 2}, {"batch", "model"}, cpu_devices(4));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                (void)mesh.device({0, 2});
              }),
              HasSubstr("index 2 on the axis \"model\", wanted 0 to 1"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { (void)mesh.device({0}); }), HasSubstr("the mesh is batch 2 x model 2"));
  EXPECT_THAT(error_of<NotFound>([&] { (void)mesh.coordinate(DeviceSpec::parse("/CPU:77")); }),
              HasSubstr("CPU:77 is not in the mesh"));
  EXPECT_THAT(error_of<NotFound>([&] { (void)mesh.groups("rows"); }), HasSubstr("there is no axis \"rows\""));
}

}  // namespace
}  // namespace cohort::device_mesh_test
