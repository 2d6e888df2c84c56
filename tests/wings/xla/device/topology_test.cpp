#include "wings/xla/device/topology.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <future>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/xla/device/fake_plugin_test.h"
#include "xla_messages.pb.h"

namespace cohort::topology_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

class Topologies : public testing::FakePluginTest {
 protected:
  Topologies() {
    xla_messages::ModuleWithConfig whole;
    xla_messages::Module& own = *whole.mutable_hlo_module();
    own.mutable_host_program_shape()->mutable_result()->set_element_type(11);
    xla_messages::Computation& entry = *own.add_computations();
    for (const char* const name : {"all-reduce-start", "all-reduce-done", "fusion", "all-reduce"}) {
      xla_messages::Instruction& operation = *entry.add_instructions();
      operation.set_opcode(name);
      operation.mutable_shape()->set_element_type(11);
      operation.mutable_shape()->add_dimensions(10);
    }
    xla_messages::Instruction& permute = *entry.add_instructions();
    permute.set_opcode("collective-permute-start");
    permute.mutable_shape()->set_element_type(13);
    for (const int64_t size : {7, 3}) {  // the operand and the result
      xla_messages::Shape& part = *permute.mutable_shape()->add_tuple_shapes();
      part.set_element_type(16);
      part.add_dimensions(size);
    }
    fake().optimized = whole.SerializeAsString();
  }
};

TEST_F(Topologies, TellTheirDevices) {
  fake().devices = 4;
  const XlaTopologyPtr topology = XlaTopology::create(load(), "fake:2x2");
  EXPECT_EQ(topology->platform(), "fake");
  EXPECT_EQ(topology->platform_version(), "7");
  ASSERT_EQ(topology->devices().size(), 4U);
  EXPECT_THAT(topology->devices()[3].coordinates, ElementsAre(1, 1, 0));
  EXPECT_FALSE(topology->devices()[3].local);
}

TEST_F(Topologies, CompileForTheirFirstDevices) {
  const XlaTopologyPtr topology = XlaTopology::create(load(), "fake:2x1");
  fake().replicas = 2;
  const auto program = topology->compile("text", {.num_replicas = 2});
  EXPECT_EQ(fake().compiled, "text");
  xla_messages::CompileOptions options;
  ASSERT_TRUE(options.ParseFromString(fake().options));
  EXPECT_THAT(options.executable_build_options().device_assignment().computation_devices(0).replica_device_ids(),
              ElementsAre(0, 1));
  EXPECT_EQ(program->num_replicas(), 2);
  const std::vector<XlaCollective> collectives = program->collectives();
  ASSERT_EQ(collectives.size(), 2U);
  EXPECT_EQ(collectives[0].name, "all-reduce");
  EXPECT_EQ(collectives[0].count, 2);
  EXPECT_EQ(collectives[0].bytes, 2 * 10 * 4);
  EXPECT_EQ(collectives[1].name, "collective-permute");
  EXPECT_EQ(collectives[1].bytes, 3 * 2);
  EXPECT_EQ(program->operations().at("fusion"), 1);
  EXPECT_EQ(program->serialize(), "serialized fake");
  EXPECT_FALSE(program->cost().flops);
  EXPECT_FALSE(program->memory());
}

TEST_F(Topologies, ThatAreNotKnownAreNamed) {
  const XlaPluginPtr plugin = load();
  fail("TopologyDescription_Create", pjrt::kInvalidArgument, "no such thing");
  EXPECT_EQ(error_of<InvalidArgument>([&] { XlaTopology::create(plugin, "v99:2x2"); }),
            "[xla] the plugin fake: PJRT_TopologyDescription_Create of \"v99:2x2\" failed (INVALID_ARGUMENT): no such "
            "thing");
}

TEST_F(Topologies, TooSmallOnesAndWrongTextsAreRefused) {
  const XlaTopologyPtr topology = XlaTopology::create(load(), "fake:2x1");
  EXPECT_THAT(error_of<InvalidArgument>([&] { topology->compile("text", {.num_replicas = 3}); }),
              HasSubstr("3 replica(s) of 1 partition(s) does not fit the topology \"fake:2x1\", which has 2"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { topology->compile("module attributes {mhlo.num_replicas = 2 : i32}"); }),
              HasSubstr("the program says mhlo.num_replicas = 2"));
  fail("Compile", pjrt::kInvalidArgument, "\"-\":1:2: error: what is this");
  EXPECT_THAT(error_of<InvalidArgument>([&] { topology->compile("text"); }),
              HasSubstr("line 1 of the program is: text"));
}

TEST_F(Topologies, CompilationsHaveALimit) {
  const XlaTopologyPtr topology = XlaTopology::create(load(), "fake:2x1");
  std::promise<void> goes_on;
  fake().gates["Compile"] = goes_on.get_future().share();
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { topology->compile("text", {.limit = std::chrono::milliseconds(10)}); }),
              HasSubstr("waited 10 ms for the plugin fake to compile the program"));
  goes_on.set_value();
  EXPECT_TRUE(comes_to("Executable_Destroy"));
}

}  // namespace
}  // namespace cohort::topology_test
