#include "cluster/host_list.h"

#include <gtest/gtest.h>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::host_list_test {
namespace {

using testing::expect_error;
using Names = std::vector<std::string>;

Names expand(const std::string& text) {
  return expand_host_list(text, "LIST");
}

TEST(HostList, ExpandsAsSlurmDoes) {
  EXPECT_EQ(expand("n1"), (Names{"n1"}));
  EXPECT_EQ(expand("n[1-2],m5,o[3-4,6]"), (Names{"n1", "n2", "m5", "o3", "o4", "o6"}));
  EXPECT_EQ(expand("n[01-03]"), (Names{"n01", "n02", "n03"})) << "leading zeros are kept";
  EXPECT_EQ(expand("n[008-011,100]"), (Names{"n008", "n009", "n010", "n011", "n100"}));
  EXPECT_EQ(expand("n[9-11]"), (Names{"n9", "n10", "n11"}));
  EXPECT_EQ(expand("rack[1-2]-n[3-4].local"),
            (Names{"rack1-n3.local", "rack2-n3.local", "rack1-n4.local", "rack2-n4.local"}));
  EXPECT_EQ(expand("[1-2]x"), (Names{"1x", "2x"}));
}

TEST(HostList, WhatIsMalformedIsNamedWithItsPlace) {
  for (const char* text : {"", "a,,b", "a,"})
    expect_error<InvalidArgument>([&] { expand(text); }, "a host has no name");
  expect_error<InvalidArgument>([] { expand("n[1-2"); }, "LIST is \"n[1-2\": a [ is not closed");
  expect_error<InvalidArgument>([] { expand("n]1"); }, "the ] at 1 does not pair");
  expect_error<InvalidArgument>([] { expand("n[[1]]"); }, "the [ at 2 does not pair");
  expect_error<InvalidArgument>([] { expand("n[2-1]"); }, "\"2-1\" is no range of numbers");
  expect_error<InvalidArgument>([] { expand("n[a]"); }, "\"a\" is no range of numbers");
  expect_error<InvalidArgument>([] { expand("n[]"); }, "\"\" is no range of numbers");
  expect_error<InvalidArgument>([] { expand("n[1--2]"); }, "is no range of numbers");
  expect_error<InvalidArgument>([] { expand("n[0-2000000000]"); }, "more than a million hosts");
  expect_error<InvalidArgument>([] { expand("a[1-999999],b[1-2]"); }, "more than a million hosts");
  expect_error<InvalidArgument>([] { expand("n[0-9999][0-9999]"); }, "more than a million hosts");
}

TEST(TaskCounts, Expand) {
  EXPECT_EQ(expand_task_counts("3(x2),2,1", "COUNTS"), (std::vector<int>{3, 3, 2, 1}));
  EXPECT_EQ(expand_task_counts("4", "COUNTS"), (std::vector<int>{4}));
  for (const char* text : {"", "x", "3(x", "3(x2", "3(xy)", "0", "-1", "1,,2", "3(x0)", "1(x99999999)", "3x2"}) {
    expect_error<InvalidArgument>([&] { expand_task_counts(text, "COUNTS"); }, "is no number of tasks");
  }
}

}  // namespace
}  // namespace cohort::host_list_test
