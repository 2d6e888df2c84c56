#include "checkpoint/environment.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <sstream>

#include "base/crc32c.h"
#include "base/log.h"
#include "cohort/checkpoint.h"
#include "tests/support/files.h"

namespace cohort::environment_test {
namespace {

TEST(Environment, NamesWhatBitsDependOn) {
  const auto& here = this_environment();
  for (const char* key : {"cpu", "threads", "libtorch", "cohort"}) EXPECT_FALSE(here.at(key).empty()) << key;
  EXPECT_EQ(here.count("blas"), 1U);
}

TEST(Environment, TellsWhatHasChanged) {
  const std::map<std::string, std::string> saved{{"cpu", "avx512"}, {"libtorch", "2.5.1"}, {"threads", "4"}};
  EXPECT_EQ(changes_since(saved, saved), "");
  EXPECT_EQ(changes_since({}, saved), "") << "checkpoints of earlier versions say nothing";
  EXPECT_EQ(changes_since(saved, {{"cpu", "avx2"}, {"libtorch", "2.5.1"}, {"threads", "2"}}),
            "cpu (avx512, now avx2), threads (4, now 2)");
}

// Puts another value into a manifest, and the checksum that it has then.
void change_manifest(const std::filesystem::path& file, const std::string& from, const std::string& to) {
  std::string text = testing::read_file(file);
  const std::size_t first_line = text.find('\n', 2) + 1;
  const std::size_t found = text.find(from);
  ASSERT_NE(found, std::string::npos) << text;
  text.replace(found, from.size(), to);
  std::string json = "{\n" + text.substr(first_line);
  std::array<char, 9> sum{};
  std::snprintf(sum.data(), sum.size(), "%08x", crc32c(std::as_bytes(std::span(json))));
  testing::write_file(file, std::string("{\n  \"crc32c\": \"") + sum.data() + "\",\n" + text.substr(first_line));
}

TEST(Environment, IsSavedAndAResumptionInAnotherOneWarns) {
  std::ostringstream said;
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(said);
  log().sinks().push_back(sink);
  const std::shared_ptr<void> at_end(nullptr, [&](void*) { std::erase(log().sinks(), sink); });
  const testing::TemporaryFolder folder;
  CheckpointManager manager(folder / "run", {.asynchronous = false});
  manager.save(3, {.values = {{"a", "b"}}});
  ASSERT_TRUE(manager.restore_latest());
  EXPECT_EQ(manager.restore_latest()->environment, this_environment());
  EXPECT_EQ(said.str(), "");
  const std::string threads = "\"threads\": \"" + this_environment().at("threads") + '"';
  change_manifest(folder / "run/ckpt-3/manifest.json", threads, "\"threads\": \"1234\"");
  ASSERT_TRUE(manager.restore_latest()) << said.str();
  EXPECT_NE(said.str().find("was saved in another environment: threads (1234, now "), std::string::npos) << said.str();
}

}  // namespace
}  // namespace cohort::environment_test
