#include "wings/xla/device/ahead.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/xla/device/fake_plugin_test.h"

namespace cohort::ahead_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

TEST(XlaReports, GoToJsonAndBack) {
  const XlaReport report{
      .name = "step",
      .num_replicas = 4,
      .num_partitions = 2,
      .compile_seconds = 1.5,
      .cost = {.flops = 7e9, .bytes_accessed = 3.5, .seconds = std::nullopt},
      .memory = XlaProgramMemory{.code = 1, .arguments = 2, .outputs = 3, .aliased = 4, .temporary = 5, .peak = 6},
      .collectives = {{.name = "all-reduce", .count = 2, .bytes = 100}},
      .operations = {{"fusion", 3}}};
  const XlaReport read = read_report(to_json(report));
  EXPECT_EQ(read.name, "step");
  EXPECT_EQ(read.num_replicas, 4);
  EXPECT_EQ(read.num_partitions, 2);
  EXPECT_EQ(read.compile_seconds, 1.5);
  EXPECT_EQ(read.cost.flops, 7e9);
  EXPECT_EQ(read.cost.bytes_accessed, 3.5);
  EXPECT_EQ(read.cost.seconds, std::nullopt);
  ASSERT_TRUE(read.memory);
  EXPECT_EQ(read.memory->peak, 6);
  EXPECT_EQ(read.memory->aliased, 4);
  ASSERT_EQ(read.collectives.size(), 1U);
  EXPECT_EQ(read.collectives[0].bytes, 100);
  EXPECT_EQ(read.operations.at("fusion"), 3);
  EXPECT_EQ(to_json(read), to_json(report));
  EXPECT_FALSE(read_report(to_json({})).memory);
  EXPECT_THAT(error_of<DataLoss>([] { read_report("{}"); }), HasSubstr("the report of a program cannot be read"));
  EXPECT_THROW(read_report("no json"), DataLoss);
}

class Ahead : public testing::FakePluginTest {};

TEST_F(Ahead, KeepsWhatItCompiled) {
  const std::filesystem::path kept = folder_ / "programs";
  const XlaTopologyPtr topology = XlaTopology::create(load(), "fake:2x1");
  const XlaAhead first = compile_ahead(*topology, "text", {}, kept);
  EXPECT_FALSE(first.kept);
  EXPECT_EQ(first.report.name, "fake");
  EXPECT_EQ(first.bytes, "serialized fake");
  const XlaAhead second = compile_ahead(*topology, "text", {}, kept);
  EXPECT_TRUE(second.kept);
  EXPECT_EQ(second.bytes, "serialized fake");
  EXPECT_EQ(second.report.compile_seconds, first.report.compile_seconds);
  EXPECT_FALSE(compile_ahead(*topology, "other", {}, kept).kept);
  EXPECT_FALSE(compile_ahead(*XlaTopology::create(load(), "fake:1x2"), "text", {}, kept).kept);
  EXPECT_EQ(fake().count("Compile"), 3U);
  for (const auto& entry : std::filesystem::directory_iterator(kept)) testing::write_file(entry.path(), "damaged");
  EXPECT_FALSE(compile_ahead(*topology, "text", {}, kept).kept);
  EXPECT_TRUE(compile_ahead(*topology, "text", {}, kept).kept);
}

TEST_F(Ahead, WithoutAFolderNothingIsKept) {
  const XlaTopologyPtr topology = XlaTopology::create(load(), "fake:2x1");
  compile_ahead(*topology, "text", {});
  EXPECT_FALSE(compile_ahead(*topology, "text", {}).kept);
}

TEST_F(Ahead, APluginThatCannotSerializeReportsAllTheSame) {
  fail("Executable_Serialize", pjrt::kUnimplemented, "not here");
  const XlaAhead ahead = compile_ahead(*XlaTopology::create(load(), "fake:2x1"), "text", {});
  EXPECT_EQ(ahead.bytes, "");
  EXPECT_EQ(ahead.report.name, "fake");
}

}  // namespace
}  // namespace cohort::ahead_test
