#include "wings/xla/base/recent.h"

#include <gtest/gtest.h>

#include <string>

namespace cohort {
namespace {

TEST(Recent, WhatWasUsedLongestAgoGoes) {
  Recent<std::string, int> recent;
  recent.put("a", 1, 2);
  recent.put("b", 2, 2);
  ASSERT_NE(recent.find("a"), nullptr);
  EXPECT_EQ(recent.put("c", 3, 2), 3);
  EXPECT_EQ(recent.size(), 2U);
  EXPECT_EQ(recent.find("b"), nullptr);
  EXPECT_EQ(*recent.find("a"), 1);
  EXPECT_EQ(*recent.find("c"), 3);
}

TEST(Recent, AValueIsReplaced) {
  Recent<int, int> recent;
  recent.put(1, 10, 4);
  recent.put(2, 20, 4);
  recent.put(1, 11, 4);
  EXPECT_EQ(recent.size(), 2U);
  EXPECT_EQ(*recent.find(1), 11);
}

TEST(Recent, ASmallerBoundGivesUpMore) {
  Recent<int, int> recent;
  for (int i = 0; i < 5; ++i) recent.put(i, i, 5);
  recent.put(5, 5, 2);
  EXPECT_EQ(recent.size(), 2U);
  EXPECT_NE(recent.find(4), nullptr);
  EXPECT_EQ(recent.find(3), nullptr);
  recent.put(6, 6, 0);  // what was put is there
  EXPECT_EQ(recent.size(), 1U);
  EXPECT_NE(recent.find(6), nullptr);
}

}  // namespace
}  // namespace cohort
