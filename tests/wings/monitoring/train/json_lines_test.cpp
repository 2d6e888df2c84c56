#include "wings/monitoring/train/json_lines.h"

#include <gtest/gtest.h>

#include <sstream>
#include <thread>
#include <vector>

namespace cohort::json_lines_test {
namespace {

using nlohmann::json;

std::vector<json> records(const std::string& text) {
  std::vector<json> list;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) list.push_back(json::parse(line));
  return list;
}

TEST(JsonLines, EachLineIsAnObject) {
  std::ostringstream stream;
  {
    JsonLines lines(stream, "info");
    stream << "step " << 7 << ": \"good\"\n\n  two\nlast\xff";
    EXPECT_EQ(records(stream.str()).size(), 2U) << "what has no end yet is kept";
  }
  const auto list = records(stream.str());
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0].at("message"), "step 7: \"good\"");
  EXPECT_EQ(list[0].at("level"), "info");
  EXPECT_EQ(list[1].at("message"), "  two");
  EXPECT_EQ(list[2].at("message"), "last\xef\xbf\xbd");
  stream << "plain\n";
  EXPECT_TRUE(stream.str().ends_with("plain\n")) << "the stream is as before";
}

TEST(JsonLines, FieldsAreOfAllLinesOrOfOne) {
  std::ostringstream stream;
  JsonLines lines(stream, "error");
  lines.set_fields({{"rank", 3}});
  stream << "a\n";
  lines.write("train", {{"step", 10}});
  const auto list = records(stream.str());
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].at("rank"), 3);
  EXPECT_FALSE(list[0].contains("step"));
  EXPECT_EQ(list[1].at("rank"), 3);
  EXPECT_EQ(list[1].at("step"), 10);
}

TEST(JsonLines, LinesOfThreadsStayWhole) {
  std::ostringstream stream;
  JsonLines lines(stream, "info");
  constexpr int kEach = 500;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < kEach; ++k) lines.write("one", {{"k", k}});
      });
    }
  }
  EXPECT_EQ(records(stream.str()).size(), 4U * kEach);
}

TEST(JsonLine, TimesAreInUtcWithMilliseconds) {
  const std::chrono::system_clock::time_point time(std::chrono::milliseconds(1'700'000'000'007));
  EXPECT_EQ(json_line(time, "info", "x"), R"({"time":"2023-11-14T22:13:20.007Z","level":"info","message":"x"})");
}

}  // namespace
}  // namespace cohort::json_lines_test
