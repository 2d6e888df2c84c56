#include "wings/xla/device/plugin.h"

#include <gmock/gmock.h>
#include <link.h>
#include <torch/torch.h>

#include <csignal>
#include <future>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/xla/device/fake_plugin_test.h"

namespace cohort::plugin_test {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

class Plugin : public testing::FakePluginTest {};

TEST_F(Plugin, TellsOfItself) {
  const XlaPluginPtr plugin = load();
  EXPECT_EQ(plugin->name(), "fake");
  EXPECT_EQ(plugin->version(), "0.81");
  EXPECT_EQ(plugin->attributes(), (XlaOptions{{"xla_version", int64_t{2}}}));
}

TEST_F(Plugin, IsLoadedOnce) {
  EXPECT_EQ(load(), load());
  EXPECT_EQ(fake().count("Plugin_Initialize"), 1U);
}

TEST_F(Plugin, ThatIsNotThereIsNamed) {
  EXPECT_THAT(error_of<NotFound>([&] {
                XlaPlugin::load({"x", folder_ / "none.so", "TPU_LIBRARY_PATH"});
              }),
              AllOf(HasSubstr("[xla] there is no plugin"), HasSubstr("none.so"), HasSubstr("TPU_LIBRARY_PATH names")));
}

// Returns the path of a shared library that is no plugin.
std::string path_of_a_library() {
  std::string path;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        if (std::string_view(info->dlpi_name).find("libstdc++") != std::string_view::npos) {
          *static_cast<std::string*>(found) = info->dlpi_name;
        }
        return 0;
      },
      &path);
  return path;
}

TEST_F(Plugin, AFileThatIsNoneIsRefused) {
  testing::write_file(folder_ / "text.so", "no library");
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                XlaPlugin::load({"x", folder_ / "text.so"});
              }),
              AllOf(HasSubstr("text.so\" cannot be loaded"), HasSubstr("file too short")));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                XlaPlugin::load({"x", path_of_a_library()});
              }),
              AllOf(HasSubstr("libstdc++"), HasSubstr("is not a plugin: it does not export GetPjrtApi")));
  fake().no_table = true;
  EXPECT_THAT(error_of<InvalidArgument>([&] { load(); }), HasSubstr("is not a plugin: GetPjrtApi returned null"));
}

TEST_F(Plugin, OfAnotherVersionIsRefused) {
  fake().minor = 56;
  EXPECT_THAT(error_of<Unimplemented>([&] { load(); }), HasSubstr("has PJRT 0.56, wanted 0.57 or a later 0.x"));
  fake().major = 1;
  fake().minor = 200;
  EXPECT_THAT(error_of<Unimplemented>([&] { load(); }), HasSubstr("has PJRT 1.200, wanted 0.57"));
  EXPECT_EQ(fake().count("Plugin_Initialize"), 0U);
  fake().major = 0;
  EXPECT_EQ(load()->version(), "0.200");  // later ones only append
}

TEST_F(Plugin, ThatCannotTellErrorsIsRefused) {
  fake().lacking.insert("Error_GetCode");
  EXPECT_THAT(error_of<Unimplemented>([&] { load(); }),
              HasSubstr("lacks the function PJRT_Error_Message, or another one that tells errors"));
}

TEST_F(Plugin, ThatRefusesCanBeTriedAgain) {
  fail("Plugin_Initialize", pjrt::kUnavailable, "the lock file is there");
  EXPECT_EQ(error_of<Unavailable>([&] { load(); }),
            "[xla] the plugin fake: PJRT_Plugin_Initialize failed (UNAVAILABLE): the lock file is there");
  fake().failures.clear();
  EXPECT_EQ(load()->name(), "fake");
}

TEST_F(Plugin, ThatLoadsTooLongIsLeft) {
  std::promise<void> goes_on;
  fake().gates["Plugin_Initialize"] = goes_on.get_future().share();
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { XlaPlugin::load(place_, std::chrono::milliseconds(20)); }),
              AllOf(HasSubstr("[xla] this process waited 20 ms for the plugin"), HasSubstr("fake_plugin.so to load")));
  goes_on.set_value();
  EXPECT_EQ(load()->name(), "fake");
  EXPECT_EQ(fake().count("Plugin_Initialize"), 1U);
}

void on_signal(int /*signal*/) {}

TEST_F(Plugin, LeavesSignalHandlersAsTheyWere) {
  struct sigaction own {};
  own.sa_handler = &on_signal;
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGTERM, &own, &before), 0);
  load();  // installs one of its own
  EXPECT_EQ(fake().count("Plugin_Initialize"), 1U);
  struct sigaction after {};
  ASSERT_EQ(::sigaction(SIGTERM, &before, &after), 0);
  EXPECT_EQ(after.sa_handler, &on_signal);
}

TEST_F(Plugin, ErrorsAreOursByTheirCode) {
  const XlaPluginPtr plugin = load();
  const auto expect = [&](auto kind, int code) {
    fail("Client_Create", static_cast<pjrt::ErrorCode>(code), "why");
    const std::string message = error_of<decltype(kind)>([&] { XlaClient::create(plugin); });
    EXPECT_THAT(message, HasSubstr("[xla] the plugin fake: PJRT_Client_Create failed (")) << code;
    EXPECT_THAT(message, HasSubstr("): why")) << code;
  };
  expect(Cancelled(""), pjrt::kCancelled);
  expect(Internal(""), pjrt::kUnknown);
  expect(InvalidArgument(""), pjrt::kInvalidArgument);
  expect(DeadlineExceeded(""), pjrt::kDeadlineExceeded);
  expect(NotFound(""), pjrt::kNotFound);
  expect(FailedPrecondition(""), pjrt::kAlreadyExists);
  expect(FailedPrecondition(""), pjrt::kPermissionDenied);
  expect(FailedPrecondition(""), pjrt::kResourceExhausted);
  expect(FailedPrecondition(""), pjrt::kFailedPrecondition);
  expect(Unavailable(""), pjrt::kAborted);
  expect(InvalidArgument(""), pjrt::kOutOfRange);
  expect(Unimplemented(""), pjrt::kUnimplemented);
  expect(Internal(""), pjrt::kInternal);
  expect(Unavailable(""), pjrt::kUnavailable);
  expect(DataLoss(""), pjrt::kDataLoss);
  expect(FailedPrecondition(""), pjrt::kUnauthenticated);
  expect(Internal(""), 99);
}

TEST_F(Plugin, LacksWhatIsBehindTheEndOfItsTable) {
  fake().shorter_by = sizeof(pjrt::Api) - offsetof(pjrt::Api, compile);
  const XlaPluginPtr plugin = load();
  EXPECT_TRUE(plugin->has(&pjrt::Api::client_compile));
  EXPECT_FALSE(plugin->has(&pjrt::Api::compile));
  pjrt::CompileArgs args;
  EXPECT_THAT(error_of<Unimplemented>([&] { plugin->call(&pjrt::Api::compile, "PJRT_Compile", args); }),
              HasSubstr("[xla] the plugin fake (PJRT 0.81) lacks the function PJRT_Compile"));
}

TEST(Tpu, IsLookedForOnTheBus) {
  const testing::TemporaryFolder bus;
  EXPECT_FALSE(may_have_tpu(bus.path()));
  EXPECT_FALSE(may_have_tpu(bus / "none"));
  const auto add = [&](const std::string& name, const std::string& vendor, const std::string& kind) {
    std::filesystem::create_directory(bus / name);
    testing::write_file(bus / name / "vendor", vendor + "\n");
    testing::write_file(bus / name / "class", kind + "\n");
  };
  add("0", "0x1ae0", "0x020000");  // Google's network card
  add("1", "0x1ae0", "0x010802");  // Google's disk
  add("2", "0x10de", "0x120000");  // somebody else's accelerator
  EXPECT_FALSE(may_have_tpu(bus.path()));
  add("3", "0x1ae0", "0x088000");
  EXPECT_TRUE(may_have_tpu(bus.path()));
}

TEST(NamedValuesOfXla, GoThereAndBack) {
  const XlaOptions options = {{"text", std::string("a")},
                              {"list", std::vector<int64_t>{1, 2}},
                              {"whole", int64_t{-3}},
                              {"real", 0.5F},
                              {"flag", true}};
  const NamedValues named(options);
  EXPECT_EQ(read_values(named.data(), named.size()), options);
}

}  // namespace
}  // namespace cohort::plugin_test
