// libtpu on a machine without a TPU: topologies by name, and programs compiled for them.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <csignal>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/xla/device/programs.h"
#include "wings/xla/device/find_plugin.h"
#include "wings/xla/device/topology.h"

namespace cohort::libtpu_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

class Libtpu : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const XlaPluginPlace& place : list_xla_plugins()) {
      if (place.name == "tpu") plugin_ = XlaPlugin::load(place);
    }
    if (!plugin_) GTEST_SKIP() << "libtpu is not here; scripts/install-deps.sh tpu brings it";
  }

  XlaPluginPtr plugin_;
};

TEST_F(Libtpu, TellsTopologiesByName) {
  const XlaTopologyPtr small = XlaTopology::create(plugin_, "v5e:2x2");
  EXPECT_EQ(small->platform(), "tpu");
  ASSERT_EQ(small->devices().size(), 4U);
  EXPECT_EQ(small->devices()[0].kind, "TPU v5 lite");
  EXPECT_THAT(small->devices()[3].coordinates, ElementsAre(1, 1, 0));
  ASSERT_TRUE(small->devices()[0].memory_bytes);
  EXPECT_GT(*small->devices()[0].memory_bytes, int64_t{15} << 30);
  const XlaTopologyPtr cores = XlaTopology::create(plugin_, "v4:2x2x2");
  ASSERT_EQ(cores->devices().size(), 16U);  // two cores a chip
  EXPECT_EQ(cores->devices()[1].coordinates, cores->devices()[0].coordinates);
  EXPECT_EQ(cores->devices()[1].core_on_chip, 1);
  const std::string message = error_of<Error>([&] { XlaTopology::create(plugin_, "v5litepod-4"); });
  EXPECT_THAT(message, HasSubstr("PJRT_TopologyDescription_Create of \"v5litepod-4\" failed"));
}

TEST_F(Libtpu, LeavesSignalHandlersAsTheyWere) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGTERM, SIGFPE, SIGINT, SIGBUS, SIGILL}) {
    struct sigaction handler {};
    ASSERT_EQ(::sigaction(signal, nullptr, &handler), 0);
    EXPECT_EQ(handler.sa_handler, SIG_DFL) << signal;
  }
}

TEST_F(Libtpu, CompilesForReplicas) {
  const XlaTopologyPtr topology = XlaTopology::create(plugin_, "v5e:2x2");
  const auto program = topology->compile(xla_programs::step(4), {.num_replicas = 4});
  EXPECT_EQ(program->num_replicas(), 4);
  ASSERT_NE(program->signature(), nullptr);
  EXPECT_THAT(program->signature()->donated, ElementsAre(true, true, false));
  EXPECT_THAT(program->signature()->parameters,
              ElementsAre(XlaShape{XlaType::kF32, {4}}, XlaShape{XlaType::kS64, {}}, XlaShape{XlaType::kF32, {4}}));
  const std::vector<XlaCollective> collectives = program->collectives();
  ASSERT_EQ(collectives.size(), 1U) << program->hlo_text();
  EXPECT_EQ(collectives[0].name, "all-reduce");
  EXPECT_EQ(collectives[0].count, 1);
  ASSERT_TRUE(program->memory());
  EXPECT_GT(program->memory()->peak, 0);
  EXPECT_GT(program->serialize().size(), 100U);
}

TEST_F(Libtpu, DividesAConvolution) {
  const XlaTopologyPtr topology = XlaTopology::create(plugin_, "v5e:2x2");
  const auto program = topology->compile(xla_programs::divided_convolution(4, true), {.num_partitions = 4});
  EXPECT_THAT(program->signature()->parameters[0].sizes, ElementsAre(1, 2, 2, 8));
  const std::vector<XlaCollective> collectives = program->collectives();
  ASSERT_FALSE(collectives.empty());
  EXPECT_EQ(collectives[0].name, "collective-permute") << program->hlo_text();
}

TEST_F(Libtpu, NamesWhatItRefuses) {
  const XlaTopologyPtr topology = XlaTopology::create(plugin_, "v5e:1x1");
  std::string text = xla_programs::kMatmul;
  text.replace(text.find("stablehlo.add"), 13, "stablehlo.ad");
  EXPECT_THAT(error_of<InvalidArgument>([&] { topology->compile(text); }),
              HasSubstr("line 4 of the program is:     %1 = stablehlo.ad"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { topology->compile(xla_programs::step(2), {.num_replicas = 2}); }),
              HasSubstr("does not fit the topology \"v5e:1x1\""));
}

TEST_F(Libtpu, HasNoClientWithoutATpu) {
  if (may_have_tpu()) GTEST_SKIP() << "there may be a TPU here";
  EXPECT_THAT(error_of<Error>([&] { XlaClient::create(plugin_); }), HasSubstr("PJRT_Client_Create failed"));
}

}  // namespace
}  // namespace cohort::libtpu_test
