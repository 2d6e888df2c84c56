#include "cohort/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::trace_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::read_file;
using cohort::testing::TemporaryFolder;

void sleep_for(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(TraceTest, EveryThreadsSpansAreInTheFile) {
  const TemporaryFolder folder;
  { const TraceSpan before("compute", "too early"); }
  Trace trace({.file = folder / "trace.json", .process = "worker 3"});
  name_traced_thread("main");
  {
    const TraceSpan outer("compute", "outer");
    sleep_for(4);
    const TraceSpan inner("compute", "inner");
    sleep_for(4);
  }
  std::thread([] {
    name_traced_thread("helper");
    const TraceSpan span("input", "helped");
    sleep_for(2);
  }).join();
  const TraceSummary summary = trace.finish();
  { const TraceSpan after("compute", "too late"); }
  const nlohmann::json events = nlohmann::json::parse(read_file(folder / "trace.json")).at("traceEvents");
  std::map<std::string, nlohmann::json> spans;
  std::map<int64_t, std::string> threads;
  std::string process;
  for (const nlohmann::json& event : events) {
    if (event.at("ph") == "X") spans[event.at("name")] = event;
    if (event.at("name") == "thread_name") threads[event.at("tid")] = event.at("args").at("name");
    if (event.at("name") == "process_name") process = event.at("args").at("name");
  }
  EXPECT_EQ(process, "worker 3");
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(threads.at(spans.at("helped").at("tid")), "helper");
  EXPECT_EQ(threads.at(spans.at("outer").at("tid")), "main");
  EXPECT_EQ(spans.at("helped").at("cat"), "input");
  EXPECT_GE(spans.at("outer").at("dur").get<double>(), 8000.0);
  EXPECT_LE(spans.at("outer").at("ts").get<double>(), spans.at("inner").at("ts").get<double>());
  const double compute = summary.seconds_of.at("main").at("compute");
  EXPECT_NEAR(compute, spans.at("outer").at("dur").get<double>() * 1e-6, 1e-6) << "the inner one does not count twice";
  EXPECT_GE(summary.seconds, compute);
}

// A stretch of time, in seconds since the beginning of a trace.
struct Stretch {
  double begin = 0.0;
  double end = 0.0;

  double common_with(const Stretch& other) const {
    return std::max(0.0, std::min(end, other.end) - std::max(begin, other.begin));
  }
};

TEST(TraceTest, TheSummaryHasTheTimeOfEachPart) {
  const TemporaryFolder folder;
  Trace trace({.file = folder / "trace.json"});
  name_traced_thread("main");
  sleep_for(5);
  {
    const TraceSpan outer("compute", "outer");
    sleep_for(5);
    {
      const TraceSpan inner("input", "inner");
      sleep_for(5);
    }
    sleep_for(5);
  }
  sleep_for(5);
  const TraceSummary summary = trace.finish();
  const nlohmann::json events = nlohmann::json::parse(read_file(folder / "trace.json")).at("traceEvents");
  std::map<std::string, Stretch> spans;
  for (const nlohmann::json& event : events) {
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts").get<double>() * 1e-6;
    spans[event.at("name")] = {.begin = begin, .end = begin + event.at("dur").get<double>() * 1e-6};
  }
  const auto& parts = summary.seconds_in_parts.at("main");
  ASSERT_EQ(parts.size(), 2U);
  const double part = summary.seconds / TraceSummary::kParts;
  for (const auto& [category, values] : parts) {
    ASSERT_EQ(values.size(), static_cast<std::size_t>(TraceSummary::kParts));
    double sum = 0.0;
    for (const double value : values) {
      EXPECT_GE(value, 0.0);
      EXPECT_LE(value, part * (1.0 + 1e-9));
      sum += value;
    }
    EXPECT_NEAR(sum, summary.seconds_of.at("main").at(category), 1e-9) << category;
  }
  for (int i = 0; i < TraceSummary::kParts; ++i) {
    const Stretch own{.begin = i * part, .end = (i + 1) * part};
    const double inner = own.common_with(spans.at("inner"));
    const double outer = own.common_with(spans.at("outer"));
    EXPECT_NEAR(parts.at("input")[static_cast<std::size_t>(i)], inner, 1e-8) << i;
    EXPECT_NEAR(parts.at("compute")[static_cast<std::size_t>(i)], outer - inner, 1e-8) << i;
  }
}

TEST(TraceTest, TheSummaryShowsTheLastSpanOfANameFromNear) {
  Trace trace({.close_up = "step"});
  name_traced_thread("main");
  for (int i = 0; i < 2; ++i) {
    const TraceSpan step("communication", "step");
    std::thread([i] {
      name_traced_thread("helper");
      const TraceSpan span("compute", i == 0 ? "early" : "late");
      sleep_for(2);
    }).join();
    const TraceSpan own("compute", "own");
    sleep_for(2);
  }
  { const TraceSpan after("compute", "after"); }
  const TraceSummary summary = trace.finish();
  EXPECT_EQ(summary.close_up_thread, "main");
  ASSERT_EQ(summary.close_up.size(), 2U);
  ASSERT_EQ(summary.close_up.at("helper").size(), 1U);
  ASSERT_EQ(summary.close_up.at("main").size(), 1U);
  const TracedSpan& late = summary.close_up.at("helper").front();
  const TracedSpan& own = summary.close_up.at("main").front();
  EXPECT_EQ(late.name, "late");
  EXPECT_EQ(late.category, "compute");
  EXPECT_EQ(own.name, "own");
  EXPECT_GE(late.end - late.begin, 0.002);
  EXPECT_LE(late.end, own.begin);
  EXPECT_LE(own.end, summary.seconds);
  EXPECT_TRUE(Trace({.close_up = "none"}).finish().close_up.empty());
}

TEST(TraceTest, TooManySpansAreCountedOnly) {
  Trace trace({.most_spans = 3});
  for (int i = 0; i < 5; ++i) const TraceSpan span("compute", "one");
  EXPECT_EQ(trace.finish().left_out, 2);
}

TEST(TraceTest, OneAtATime) {
  const Trace trace({});
  expect_error<FailedPrecondition>([] { Trace({}); }, "another trace is being taken");
}

TEST(TraceTest, SaysBeforeItBeginsThatItCannotBeWritten) {
  const TemporaryFolder folder;
  expect_error<NotFound>([&] { Trace({.file = folder / "none" / "trace.json"}); }, "none/trace.json");
  expect_error<InvalidArgument>([&] { Trace({.file = folder.path()}); }, "is a folder");
}

TEST(TraceTest, SaysAtTheEndThatItCannotBeWritten) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "lost");
  Trace trace({.file = folder / "lost" / "trace.json"});
  std::filesystem::remove(folder / "lost");
  expect_error<NotFound>([&] { trace.finish(); }, "trace.json");
}

}  // namespace
}  // namespace cohort::trace_test
