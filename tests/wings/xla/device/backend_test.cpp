// The devices of a plugin as a back end, and what becomes of failures while a program records and runs: by the tests'
// own plugin. A process opens one plugin, so the tests follow each other.
#include "wings/xla/device/backend.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <fstream>

#include "cohort/device.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/xla/device/fake_plugin_test.h"
#include "wings/xla/device/runner.h"
#include "wings/xla/record/recorder.h"

namespace cohort::backend_test {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using namespace std::chrono_literals;  // NOLINT: for literals

class XlaBackendTest : public testing::FakePluginTest {
 protected:
  XlaOpenOptions options() const { return {.plugin = place_.path.string(), .source = "the test"}; }

  // Tells the plugin that its programs take f32[4] and give f32[4].
  void give_programs_a_signature() const { fake().optimized = testing::program_of_four(/*donates=*/false); }
};

TEST_F(XlaBackendTest, NothingIsOpenUntilItOpens) {
  fail("Client_Create", pjrt::kFailedPrecondition, "No jellyfish device found.");
  EXPECT_THAT(error_of<FailedPrecondition>([&] { open_xla(options()); }),
              AllOf(HasSubstr("PJRT_Client_Create failed"), HasSubstr("No jellyfish device found.")));
  EXPECT_THAT(error_of<NotFound>([&] { open_xla({.plugin = "/there/is/none.so", .source = "the test"}); }),
              HasSubstr("/there/is/none.so"));
  const std::string text = (folder_ / "text.so").string();
  std::ofstream(text) << "no library";
  EXPECT_THAT(error_of<InvalidArgument>([&] { open_xla({.plugin = text, .source = "the test"}); }),
              HasSubstr("cannot be loaded"));
  EXPECT_THAT(list_logical_devices("XLA"), IsEmpty());
}

TEST_F(XlaBackendTest, FailuresNameWhatFailed) {
  give_programs_a_signature();
  const XlaClientPtr client = open_xla(options());
  ASSERT_EQ(list_logical_devices("XLA").size(), 2U);
  EXPECT_EQ(memory_info("/XLA:1").in_use, 100);
  EXPECT_EQ(open_xla(options()), client);

  XlaOpenOptions precise = options();
  precise.matmul_precision = "low";
  EXPECT_THAT(error_of<InvalidArgument>([&] { open_xla(precise); }),
              HasSubstr("the test: matmul_precision is low, wanted default, high or highest"));
  precise.matmul_precision = "high";
  open_xla(precise);
  EXPECT_EQ(record::matmul_precision(), record::MatmulPrecision::kHigh);
  precise.matmul_precision = "highest";
  EXPECT_THAT(error_of<FailedPrecondition>([&] { open_xla(precise); }),
              HasSubstr("wants matmul_precision highest, but this process computes with high already"));
  open_xla(options());  // says nothing of it

  const torch::Device device(torch::kXLA, 0);  // where the plugin runs programs of one replica
  const torch::Tensor host = torch::arange(4, torch::kFloat);
  fail("Client_BufferFromHostBuffer", pjrt::kResourceExhausted, "17.1G of 15.7G are needed");
  EXPECT_THAT(error_of<FailedPrecondition>([&] { host.to(device); }),
              HasSubstr("failed (RESOURCE_EXHAUSTED, out of memory): 17.1G of 15.7G are needed"));
  fake().failures.clear();

  const torch::Tensor x = host.to(device);
  EXPECT_TRUE(x.cpu().equal(host));
  fail("Client_Compile", pjrt::kInvalidArgument, "-:2:3: error: no such operation");
  EXPECT_THAT(error_of<InvalidArgument>([&] { x.neg().cpu(); }), HasSubstr("no such operation"));
  fake().failures.clear();
  fail("LoadedExecutable_Execute", pjrt::kUnavailable, "the device is gone");
  EXPECT_THAT(error_of<Unavailable>([&] { x.neg().cpu(); }), HasSubstr("the device is gone"));
  fake().failures.clear();
  fake().event_failure = {pjrt::kUnavailable, "the device was lost"};
  EXPECT_THAT(error_of<Unavailable>([&] { x.neg().cpu(); }), HasSubstr("the device was lost"));
  fake().event_failure = {};
  EXPECT_EQ(x.neg().cpu().sizes(), host.sizes());

  record::set_runner(make_xla_runner(client, {.limit = 30ms}));
  fake().events_hang = true;
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { x.neg().cpu(); }), HasSubstr("waited 30 ms"));
  fake().events_hang = false;
  record::set_runner(nullptr);
}

TEST_F(XlaBackendTest, AnotherPluginOrOptionIsRefused) {
  EXPECT_THAT(error_of<FailedPrecondition>([&] { open_xla(options()); }),
              AllOf(HasSubstr("the test wants the plugin"), HasSubstr("a process has the devices of one plugin")));
}

}  // namespace
}  // namespace cohort::backend_test
