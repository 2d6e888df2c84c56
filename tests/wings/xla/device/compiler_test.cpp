#include "wings/xla/device/compiler.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <thread>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/xla/device/fake_plugin_test.h"
#include "xla_messages.pb.h"

namespace cohort::compiler_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::read_file;
using testing::write_file;

class Compiler : public testing::FakePluginTest {
 protected:
  Compiler() {
    xla_messages::ModuleWithConfig whole;
    whole.mutable_hlo_module()->mutable_host_program_shape()->mutable_result()->set_element_type(11);
    fake().optimized = whole.SerializeAsString();
  }

  XlaClientPtr client() { return XlaClient::create(load()); }
  std::filesystem::path only_file() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(kept_)) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1U);
    return files.at(0);
  }

  const std::filesystem::path kept_ = folder_ / "programs";
};

TEST_F(Compiler, CompilesAProgramOnce) {
  XlaCompiler compiler(client());
  const XlaExecutablePtr first = compiler.compile("a");
  EXPECT_EQ(compiler.compile("a"), first);
  EXPECT_NE(compiler.compile("b"), first);
  EXPECT_NE(compiler.compile("a", {.flags = {{"x", "1"}}}), first);
  EXPECT_EQ(fake().count("Client_Compile"), 3U);
  EXPECT_EQ(compiler.figures().compiled, 3);
  EXPECT_EQ(compiler.figures().in_memory, 1);
  EXPECT_EQ(compiler.figures().on_disk, 0);
}

TEST_F(Compiler, AFailureIsTriedAgain) {
  XlaCompiler compiler(client());
  fail("Client_Compile", pjrt::kResourceExhausted, "full");
  EXPECT_THROW(compiler.compile("a"), FailedPrecondition);
  fake().failures.clear();
  EXPECT_NE(compiler.compile("a"), nullptr);
}

TEST_F(Compiler, ThreadsShareACompilation) {
  XlaCompiler compiler(client());
  fake().delays["Client_Compile"] = std::chrono::milliseconds(100);
  std::vector<XlaExecutablePtr> programs(4);
  std::vector<std::thread> threads;
  for (XlaExecutablePtr& program : programs) threads.emplace_back([&] { program = compiler.compile("a"); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake().count("Client_Compile"), 1U);
  EXPECT_THAT(programs, ::testing::Each(programs[0]));
}

TEST_F(Compiler, KeepsProgramsForLaterRuns) {
  XlaCompiler(client(), {.directory = kept_}).compile("a");
  XlaCompiler later(client(), {.directory = kept_});
  later.compile("a");
  EXPECT_EQ(later.figures().on_disk, 1);
  EXPECT_EQ(fake().count("Client_Compile"), 1U);
  EXPECT_EQ(fake().count("Executable_DeserializeAndLoad"), 1U);
  later.compile("b");
  EXPECT_EQ(fake().count("Client_Compile"), 2U);
}

TEST_F(Compiler, ProgramsOfOtherDevicesAreOthers) {
  XlaCompiler(client(), {.directory = kept_}).compile("a");
  fake().devices = 3;
  XlaCompiler(client(), {.directory = kept_}).compile("a");
  EXPECT_EQ(fake().count("Client_Compile"), 2U);
}

TEST_F(Compiler, ADamagedFileIsReplaced) {
  XlaCompiler(client(), {.directory = kept_}).compile("a");
  const std::filesystem::path file = only_file();
  const std::string whole = read_file(file);
  for (const std::string& damaged : {whole.substr(0, whole.size() - 1), whole + "x", std::string("cohort-xla 9 1 1\nx"),
                                     std::string(), whole.substr(0, whole.size() - 1) + "~"}) {
    write_file(file, damaged);
    EXPECT_THROW(read_program_file(file), DataLoss) << damaged;
    XlaCompiler again(client(), {.directory = kept_});
    again.compile("a");
    EXPECT_EQ(again.figures().compiled, 1);
    EXPECT_EQ(read_file(file), whole);
  }
}

TEST_F(Compiler, AProgramThatThePluginRefusesIsReplaced) {
  XlaCompiler(client(), {.directory = kept_}).compile("a");
  fail("Executable_DeserializeAndLoad", pjrt::kInvalidArgument, "of another version");
  XlaCompiler again(client(), {.directory = kept_});
  again.compile("a");
  EXPECT_EQ(again.figures().compiled, 1);
}

TEST_F(Compiler, APluginThatCannotSerializeCompilesAllTheSame) {
  fail("Executable_Serialize", pjrt::kUnimplemented, "not here");
  XlaCompiler compiler(client(), {.directory = kept_});
  EXPECT_NE(compiler.compile("a"), nullptr);
  EXPECT_TRUE(std::filesystem::is_empty(kept_));
}

TEST_F(Compiler, AFolderThatAllMayWriteToIsRefused) {
  std::filesystem::create_directory(kept_);
  std::filesystem::permissions(kept_, std::filesystem::perms::all);
  EXPECT_THAT(error_of<FailedPrecondition>([&] { XlaCompiler(client(), {.directory = kept_}); }),
              HasSubstr("may be written to by all"));
  write_file(folder_ / "file", "");
  EXPECT_THROW(XlaCompiler(client(), {.directory = folder_ / "file"}), Error);
}

TEST(ProgramKey, TellsProgramsApart) {
  const std::string key = program_key("text", {}, "cpu");
  EXPECT_EQ(key.size(), 64U);
  EXPECT_EQ(program_key("text", {}, "cpu"), key);
  std::set<std::string> keys = {key,
                                program_key("texts", {}, "cpu"),
                                program_key("text", {}, "tpu"),
                                program_key("text", {.num_replicas = 2}, "cpu"),
                                program_key("text", {.num_partitions = 2}, "cpu"),
                                program_key("text", {.devices = {1}}, "cpu"),
                                program_key("text", {.shardy = false}, "cpu"),
                                program_key("text", {.flags = {{"a", "b"}}}, "cpu"),
                                program_key("text", {.flags = {{"ab", ""}}}, "cpu")};
  EXPECT_EQ(keys.size(), 9U);
}

}  // namespace
}  // namespace cohort::compiler_test
