// Every failure that a client, a compilation, a copy or a launch can meet, by the tests' own plugin.
#include "wings/xla/device/client.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <thread>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/xla/device/fake_plugin_test.h"
#include "xla_messages.pb.h"

namespace cohort::client_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

using namespace std::chrono_literals;  // NOLINT: for literals

const char* const kText = "module @m {\n  func.func @main() {\n  }\n}\n";

class Client : public testing::FakePluginTest {
 protected:
  // Makes a client; its programs have two parameters f32[4], of which the first is donated, and return the first.
  XlaClientPtr client() {
    fake().optimized = program(true);
    return XlaClient::create(load());
  }

  // Returns a client with a program for two replicas and its arguments.
  XlaExecutablePtr on_two(const XlaClientPtr& client, XlaLists& arguments) {
    fake().replicas = 2;
    XlaExecutablePtr executable = client->compile(kText, {.num_replicas = 2});
    arguments.resize(2);
    for (int r = 0; r < 2; ++r) {
      arguments[r] = {client->to_device(torch::full({4}, 1.0F + r), r), client->to_device(torch::zeros({4}), r)};
    }
    return executable;
  }

  static std::string program(bool donates) {
    xla_messages::ModuleWithConfig whole;
    xla_messages::Module& own = *whole.mutable_hlo_module();
    own.set_name("m");
    xla_messages::Shape array;
    array.set_element_type(11);
    array.add_dimensions(4);
    *own.mutable_host_program_shape()->add_parameters() = array;
    *own.mutable_host_program_shape()->add_parameters() = array;
    *own.mutable_host_program_shape()->mutable_result() = array;
    if (donates) own.mutable_input_output_alias()->add_entries()->set_parameter_number(0);
    return whole.SerializeAsString();
  }
};

TEST_F(Client, TellsItsDevices) {
  const XlaClientPtr own = client();
  ASSERT_EQ(own->devices().size(), 2U);
  const XlaDevice& second = own->device(1);
  EXPECT_EQ(second.kind, "Fake v1");
  EXPECT_EQ(second.name, "FakeDevice(1)");
  EXPECT_THAT(second.coordinates, ElementsAre(1, 0, 0));
  EXPECT_EQ(second.core_on_chip, 1);
  EXPECT_EQ(second.memory_bytes, 1 << 30);
  EXPECT_EQ(own->memory(0)->in_use, 100);
  EXPECT_EQ(own->memory(0)->peak, 200);
}

TEST_F(Client, DevicesMayKeepTheirMemoryToThemselves) {
  fake().lacking.insert("Device_MemoryStats");
  const XlaClientPtr own = client();
  EXPECT_EQ(own->memory(0), std::nullopt);
  EXPECT_EQ(own->device(0).memory_bytes, std::nullopt);
}

TEST_F(Client, WithoutDevicesTellsWhy) {
  fail("Client_Create", pjrt::kFailedPrecondition, "No jellyfish device found.");
  EXPECT_EQ(error_of<FailedPrecondition>([&] { client(); }),
            "[xla] the plugin fake: PJRT_Client_Create failed (FAILED_PRECONDITION): No jellyfish device found.");
}

TEST_F(Client, ThatOpensTooSlowlyIsLeftAndFreed) {
  fake().delays["Client_Create"] = 300ms;
  const XlaPluginPtr plugin = load();
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { XlaClient::create(plugin, {.limit = 20ms}); }),
              HasSubstr("waited 20 ms for the plugin fake to open its devices"));
  EXPECT_TRUE(comes_to("Client_Destroy"));
}

TEST_F(Client, GivesOptionsToTheCompiler) {
  const XlaClientPtr own = client();
  fake().replicas = 2;
  const auto options_of = [&](const XlaCompileOptions& options) {
    own->compile(kText, options);
    xla_messages::CompileOptions encoded;
    EXPECT_TRUE(encoded.ParseFromString(fake().options));
    return encoded;
  };
  xla_messages::CompileOptions encoded = options_of({.num_replicas = 2, .devices = {1, 0}});
  EXPECT_EQ(fake().compiled, kText);
  xla_messages::BuildOptions build = encoded.executable_build_options();
  EXPECT_EQ(build.num_replicas(), 2);
  EXPECT_EQ(build.num_partitions(), 1);
  EXPECT_FALSE(build.use_spmd_partitioning());
  EXPECT_THAT(build.device_assignment().computation_devices(0).replica_device_ids(), ElementsAre(1, 0));
  fake().replicas = 1;
  fake().partitions = 2;
  encoded = options_of({.num_partitions = 2, .flags = {{"a", "true"}, {"b", "7"}, {"c", "text"}}});
  build = encoded.executable_build_options();
  EXPECT_TRUE(build.use_spmd_partitioning());
  EXPECT_TRUE(build.use_shardy_partitioner());
  EXPECT_EQ(build.device_assignment().computation_devices_size(), 2);
  EXPECT_TRUE(encoded.env_option_overrides().at("a").flag());
  EXPECT_EQ(encoded.env_option_overrides().at("b").number(), 7);
  EXPECT_EQ(encoded.env_option_overrides().at("c").text(), "text");
  encoded = options_of({.num_partitions = 2, .shardy = false});
  EXPECT_FALSE(encoded.executable_build_options().use_shardy_partitioner());
}

TEST_F(Client, CompilationsThatFailTellWhy) {
  const XlaClientPtr own = client();
  fail("Client_Compile", pjrt::kUnknown, "-:2:3: error: no such operation");
  EXPECT_THAT(error_of<InvalidArgument>([&] { own->compile(kText); }),
              AllOf(HasSubstr("PJRT_Client_Compile failed (UNKNOWN): -:2:3: error: no such operation"),
                    HasSubstr("[xla] line 2 of the program is:   func.func @main() {")));
  fail("Client_Compile", pjrt::kInvalidArgument, "-:99:3: error: beyond the text");
  EXPECT_THAT(error_of<InvalidArgument>([&] { own->compile(kText); }), ::testing::EndsWith("beyond the text"));
  fail("Client_Compile", pjrt::kResourceExhausted, "17.1G of 15.7G are needed");
  EXPECT_THAT(error_of<FailedPrecondition>([&] { own->compile(kText); }),
              HasSubstr("failed (RESOURCE_EXHAUSTED, out of memory): 17.1G of 15.7G are needed"));
  fail("Client_Compile", pjrt::kInternal, "at xla.cc:12:3");
  EXPECT_THAT(error_of<Internal>([&] { own->compile(kText); }), HasSubstr("xla.cc"));
  EXPECT_EQ(fake().executables, 0);
}

TEST_F(Client, ACompilationThatTakesTooLongIsLeftAndFreed) {
  const XlaClientPtr own = client();
  fake().delays["Client_Compile"] = 300ms;
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { own->compile(kText, {.limit = 20ms}); }),
              HasSubstr("waited 20 ms for the plugin fake to compile the program"));
  EXPECT_TRUE(comes_to("LoadedExecutable_Destroy"));
}

TEST_F(Client, WithoutACompilerSaysSo) {
  fake().lacking.insert("Client_Compile");
  const XlaClientPtr own = client();
  EXPECT_THAT(error_of<Unimplemented>([&] { own->compile(kText); }),
              HasSubstr("the plugin fake (PJRT 0.81) lacks the function PJRT_Client_Compile"));
}

TEST_F(Client, AProgramForOtherDevicesIsRefused) {
  const XlaClientPtr own = client();
  EXPECT_THAT(error_of<FailedPrecondition>([&] { own->load("bytes", {.devices = {1}}); }),
              HasSubstr("the program runs on device 0, which is not among those that its options name: [1]"));
  fake().replicas = 2;
  EXPECT_THAT(error_of<FailedPrecondition>([&] { own->load("bytes"); }), HasSubstr("is for 2 replica(s) of 1"));
}

TEST_F(Client, ALostDeviceIsToldByTheLaunch) {
  const XlaClientPtr own = client();
  XlaLists arguments;
  const XlaExecutablePtr program = on_two(own, arguments);
  fail("LoadedExecutable_Execute", pjrt::kUnavailable, "the chip does not answer");
  EXPECT_THAT(error_of<Unavailable>([&] { program->launch(arguments); }),
              HasSubstr("PJRT_LoadedExecutable_Execute failed (UNAVAILABLE): the chip does not answer"));
  EXPECT_FALSE(arguments[0][0].deleted());  // the plugin did not take it
  fake().failures.clear();
  fake().event_failure = {pjrt::kUnavailable, "the chip is gone"};
  fake().event_delay = 20ms;
  const XlaLaunch launch = program->launch(arguments);
  EXPECT_EQ(error_of<Unavailable>([&] { launch.done.wait(); }),
            "[xla] the plugin fake: the launch of fake failed (UNAVAILABLE): the chip is gone");
  EXPECT_THAT(error_of<Unavailable>([&] { launch.outputs[0][0].ready().wait(); }),
              HasSubstr("the computation of f32[4] on device 0 failed (UNAVAILABLE)"));
  EXPECT_THROW(launch.outputs[0][0].to_host(), Unavailable);
}

TEST_F(Client, WaitsHaveADeadline) {
  const XlaClientPtr own = client();
  XlaLists arguments;
  const XlaExecutablePtr program = on_two(own, arguments);
  fake().events_hang = true;
  const XlaLaunch launch = program->launch(arguments);
  EXPECT_FALSE(launch.done.ready());
  EXPECT_EQ(error_of<DeadlineExceeded>([&] { launch.done.wait(Deadline(30ms)); }),
            "[xla] the plugin fake: waited 30 ms for the launch of fake, which has not ended");
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { launch.outputs[1][0].to_host(Deadline(10ms)); }),
              HasSubstr("waited 10 ms for the copy of f32[4] from device 1 to the host, which has not ended"));
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { launch.outputs[1][0].ready().wait(Deadline(10ms)); }),
              HasSubstr("waited 10 ms for the computation of f32[4] on device 1"));
}

TEST_F(Client, WaitsEndWhenTheWorkDoes) {
  const XlaClientPtr own = client();
  XlaLists arguments;
  const XlaExecutablePtr program = on_two(own, arguments);
  fake().events_hang = true;
  const XlaLaunch launch = program->launch(arguments);
  EXPECT_FALSE(launch.done.ready());
  std::jthread later([&] {
    std::this_thread::sleep_for(20ms);
    let_happen();
  });
  launch.done.wait();
  later.join();
  EXPECT_TRUE(launch.done.ready());
  launch.done.wait();
  EXPECT_TRUE(torch::equal(launch.outputs[1][0].to_host(), torch::full({4}, 2.0F)));
  EXPECT_TRUE(XlaEvent().ready());
  XlaEvent().wait();
}

TEST_F(Client, HoldsWhatIsBeingCopied) {
  const XlaClientPtr own = client();
  fake().events_hang = true;
  auto freed = std::make_shared<std::atomic<bool>>(false);
  std::vector<float> memory(4, 3.0F);
  XlaUpload upload =
      own->upload(torch::from_blob(memory.data(), {4}, [freed](void*) { *freed = true; }), 0, XlaHostMemory::kKept);
  upload.buffer = XlaBuffer();
  EXPECT_FALSE(*freed);
  std::jthread later([&] {
    std::this_thread::sleep_for(20ms);
    let_happen();
  });
  upload.host_done.wait();
  later.join();
  for (int i = 0; i < 20'000 && !*freed; ++i) std::this_thread::sleep_for(1ms);  // after the wait's end, at once
  EXPECT_TRUE(*freed);
  *freed = false;
  own->upload(torch::from_blob(memory.data(), {4}, [freed](void*) { *freed = true; }), 0, XlaHostMemory::kCopied);
  EXPECT_TRUE(*freed);
}

TEST_F(Client, ARefusedLaunchDoesNotBegin) {
  const XlaClientPtr own = client();
  XlaLists arguments;
  const XlaExecutablePtr program = on_two(own, arguments);
  XlaLists wrong = arguments;
  wrong[1][1] = own->to_device(torch::zeros({5}), 1);
  EXPECT_THROW(program->launch(wrong), InvalidArgument);
  wrong = arguments;
  wrong[1].pop_back();
  EXPECT_THROW(program->launch(wrong), InvalidArgument);
  wrong[1] = {arguments[1][0], arguments[1][0]};
  EXPECT_THROW(program->launch(wrong), InvalidArgument);
  EXPECT_THROW(program->launch({}), InvalidArgument);
  EXPECT_EQ(fake().count("LoadedExecutable_Execute"), 0U);
  EXPECT_FALSE(arguments[0][0].deleted());
  program->launch(arguments);
  EXPECT_TRUE(arguments[1][0].deleted());
  EXPECT_FALSE(arguments[1][1].deleted());
}

TEST_F(Client, AProgramThatIsNotToldRunsUnchecked) {
  fake().lacking.insert("Executable_OptimizedProgram");
  fake().donated = {1};
  const XlaClientPtr own = client();
  XlaLists arguments;
  const XlaExecutablePtr program = on_two(own, arguments);
  EXPECT_EQ(program->program().signature(), nullptr);
  EXPECT_THROW(program->program().collectives(), Unimplemented);
  const XlaLaunch launch = program->launch(arguments);
  EXPECT_EQ(launch.outputs[0][0].shape().to_text(), "f32[4]");
  EXPECT_FALSE(arguments[0][0].deleted());
  EXPECT_TRUE(arguments[0][1].deleted());
  EXPECT_THAT(error_of<FailedPrecondition>([&] { program->launch(arguments); }), HasSubstr("was donated"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { program->launch({arguments[0], {}}); }), HasSubstr("wanted 2"));
}

TEST_F(Client, AProgramThatCannotBeReadIsDamaged) {
  const XlaClientPtr own = client();
  fake().optimized = "\xff\xff";
  EXPECT_THAT(error_of<DataLoss>([&] { own->compile(kText); }), HasSubstr("2 bytes are no optimised program"));
  xla_messages::ModuleWithConfig whole;
  whole.mutable_hlo_module()->mutable_input_output_alias()->add_entries()->set_parameter_number(7);
  fake().optimized = whole.SerializeAsString();
  EXPECT_THAT(error_of<DataLoss>([&] { own->compile(kText); }), HasSubstr("0 parameters donates parameter 7"));
  fake().optimized = program(false);
  fake().outputs = 3;
  EXPECT_THAT(error_of<Internal>([&] { own->compile(kText); }),
              HasSubstr("has 3 outputs, but 1 in its optimised form"));
  EXPECT_EQ(fake().executables, 0);
}

TEST_F(Client, FreesAllThatItMade) {
  {
    const XlaClientPtr own = client();
    XlaLists arguments;
    const XlaExecutablePtr program = on_two(own, arguments);
    const XlaLaunch launch = program->launch(arguments);
    EXPECT_EQ(fake().buffers, 4 + 2);
    arguments[0][1].erase();
    EXPECT_TRUE(arguments[0][1].deleted());
    arguments[0][1].erase();
  }
  EXPECT_EQ(fake().count("Buffer_Delete"), 1U);
  EXPECT_EQ(fake().buffers, 0);
  EXPECT_EQ(fake().executables, 0);
  EXPECT_EQ(fake().clients, 0);
}

// XLA's plugin for CPUs lets the destruction of a donated buffer wait until the launch has begun on the device.
TEST_F(Client, DonatedBuffersAreDestroyedWhenTheirLaunchIsDone) {
  const XlaClientPtr own = client();
  const XlaExecutablePtr program = own->compile(kText);
  const XlaBuffer other = own->to_device(torch::zeros({4}), 0);
  std::vector<XlaBuffer> given;
  for (int i = 0; i < 3; ++i) given.push_back(own->to_device(torch::zeros({4}), 0));
  const auto launch_new = [&] {
    const XlaLists arguments{{given.back(), other}};
    given.pop_back();
    return program->launch(arguments);
  };
  fake().events_hang = true;
  const XlaLaunch first = launch_new();
  const XlaLaunch second = launch_new();
  EXPECT_EQ(fake().count("Buffer_Destroy"), 0U);
  fake().events_hang = false;
  fake().hanging.front()();  // the end of the first launch
  first.done.wait();
  launch_new();
  EXPECT_EQ(fake().count("Buffer_Destroy"), 1U + 1U);  // what the first launch took, and the third one's result
}

TEST_F(Client, LivesAsLongAsItsBuffers) {
  XlaBuffer buffer = client()->to_device(torch::full({4}, 2.5F), 0);
  EXPECT_EQ(fake().clients, 1);
  EXPECT_EQ(buffer.to_host()[3].item<float>(), 2.5F);
  buffer = XlaBuffer();
  EXPECT_EQ(fake().clients, 0);
  EXPECT_THAT(error_of<FailedPrecondition>([&] { buffer.to_host(); }), HasSubstr("stands for no array"));
}

TEST_F(Client, ThreadsLaunchSideBySide) {
  const XlaClientPtr own = client();
  XlaLists unused;
  const XlaExecutablePtr program = on_two(own, unused);
  fake().event_delay = 1ms;
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        XlaLists arguments(2);
        for (int r = 0; r < 2; ++r) {
          arguments[r] = {own->to_device(torch::full({4}, t * 100.0F + i), r), own->to_device(torch::zeros({4}), r)};
        }
        const XlaLaunch launch = program->launch(arguments);
        launch.done.wait();
        right += launch.outputs[1][0].to_host()[0].item<float>() == t * 100.0F + i ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 100);
}

}  // namespace
}  // namespace cohort::client_test
