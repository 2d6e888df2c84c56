#include <gtest/gtest.h>

#include "cohort/error.h"
#include "tests/config/model.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::gin_test {
namespace {

using cohort::testing::Described;
using cohort::testing::expect_error;
using cohort::testing::TemporaryFolder;
using cohort::testing::write_file;

TEST(GinTest, ReadsValuesCommentsMacrosAndIncludes) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "more");
  write_file(folder / "more/base.gin", "BATCH = 1_024\ntrain.cache = True\n");
  write_file(folder / "run.gin",
             "# a comment\n"
             "include 'more/base.gin'\n"
             "train.batch = %BATCH  # from there\n"
             "test.path = \\\n  'a' \"b\\n\"\n"
             "train.size = (3,\n    4,  # and\n)\n"
             "test.size = [1, 2]\n"
             "train.path = '''two\nlines'''\n");
  Described it;
  it.config.apply_gin_file(folder / "run.gin");
  EXPECT_EQ(it.run.train.batch, 1024);
  EXPECT_TRUE(it.run.train.cache);
  EXPECT_EQ(it.run.test.path, "ab\n");
  EXPECT_EQ(it.run.train.size, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(it.run.test.size, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(it.run.train.path, "two\nlines");
  it.config.apply_gin("train.path = None\ntrain.batch = (7)");
  EXPECT_EQ(it.run.train.path, "");
  EXPECT_EQ(it.run.train.batch, 7);
}

struct Outer {
  cohort::testing::RunConfig run;
  void describe(ConfigFields& fields) { fields.nest("task", run); }
};

TEST(GinTest, KeysMayLeaveOutTheBeginningOfTheirPath) {
  Outer outer;
  Config config([&](ConfigFields& fields) { outer.describe(fields); });
  config.apply_gin("train.batch = 5");
  EXPECT_EQ(outer.run.train.batch, 5);
  config.apply_gin("task.steps = 6");
  EXPECT_EQ(outer.run.steps, 6);
  expect_error<NotFound>([&] { config.apply_gin("train.btach = 5"); }, "did you mean task.train.batch?");
  Outer first, second;
  Config both([&](ConfigFields& fields) {
    fields.nest("first", first);
    fields.nest("second", second);
  });
  expect_error<InvalidArgument>([&] { both.apply_gin("train.batch = 5"); },
                                "train.batch may be first.task.train.batch or second.task.train.batch");
}

TEST(GinTest, WhatIsNoDataIsRefusedWithItsLine) {
  Described it;
  const auto refused = [&](const char* text, const char* part) {
    expect_error<InvalidArgument>([&] { it.config.apply_gin(text, "x.gin"); }, part);
  };
  expect_error<InvalidArgument>([&] { it.config.apply_gin("\nimport os", "x.gin"); },
                                "x.gin, line 2: import would run code");
  expect_error<InvalidArgument>([&] { it.config.apply_gin("train.path = @f()"); }, "a reference to code");
  expect_error<NotFound>([&] { it.config.apply_gin("train.batch = %NONE"); }, "there is no macro NONE");
  expect_error<NotFound>([&] { it.config.apply_gin("include 'none.gin'"); }, "none.gin: cannot be opened");
  refused("a/train.batch = 1", "the scope a/");
  refused("train.batch 1", "is not followed by =");
  refused("train.batch = [1, 2", "the text ends within a value");
  refused("train.batch = [1 2]", "a comma is missing");
  refused("train.batch = 1 2", "after the end of a statement");
  refused("train.path = 'a\n'", "no closing quote");
  refused("train.path = word", "\"word\" is no value");
  refused("train.batch = 'x'", "train.batch is \"x\", wanted integer");
  refused(("train.size = " + std::string(200, '[')).c_str(), "levels of brackets");
}

TEST(GinTest, MacrosThatDoubleAreRefusedByName) {
  std::string text = "M0 = [1, 1]\n";
  for (int i = 1; i <= 40; ++i) text += c10::str("M", i, " = [%M", i - 1, ", %M", i - 1, "]\n");
  Described it;
  expect_error<InvalidArgument>([&] { it.config.apply_gin(text, "x.gin"); },
                                "x.gin, line 19: the macro M17 makes this longer than 1000000");
  text = "N0 = [1]\n";
  for (int i = 1; i <= 200; ++i) text += c10::str("N", i, " = [%N", i - 1, "]\n");
  expect_error<InvalidArgument>([&] { it.config.apply_gin(text, "x.gin"); },
                                "x.gin, line 102: the macro N100 has more than 100 levels");
  it.config.apply_gin("LONG = [3, 4]\nANOTHER = %LONG\ntrain.size = %ANOTHER", "x.gin");
  EXPECT_EQ(it.run.train.size, (std::vector<int64_t>{3, 4}));
}

TEST(GinTest, FilesThatIncludeEachOtherEnd) {
  const TemporaryFolder folder;
  write_file(folder / "a.gin", "include 'a.gin'\n");
  Described it;
  expect_error<InvalidArgument>([&] { it.config.apply_gin_file(folder / "a.gin"); }, "files include each other");
}

}  // namespace
}  // namespace cohort::gin_test
