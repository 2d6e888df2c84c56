#include "device/visible_cards.h"

#include <gtest/gtest.h>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::visible_cards_test {
namespace {

using testing::expect_error;
using Kind = VisibleCard::Kind;

TEST(VisibleCards, AreNumbersUuidsAndInstances) {
  const auto cards =
      parse_visible_cards(" 2,GPU-8932f937-d72c-4106-c12f-20bd9faed9f6, GPU-11,MIG-1a-2b,MIG-GPU-3c/7/0");
  ASSERT_EQ(cards.size(), 5U);
  EXPECT_EQ(cards[0].kind, Kind::kIndex);
  EXPECT_EQ(cards[0].index, 2);
  EXPECT_EQ(cards[1].kind, Kind::kUuid);
  EXPECT_EQ(cards[1].name, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
  EXPECT_EQ(cards[2].kind, Kind::kUuid);
  EXPECT_EQ(cards[3].kind, Kind::kMig);
  EXPECT_EQ(cards[4].kind, Kind::kMig);
}

TEST(VisibleCards, MayBeHidden) {
  for (const char* text : {"", " ", "-1", "NoDevFiles"}) EXPECT_TRUE(parse_visible_cards(text).empty()) << text;
  EXPECT_EQ(parse_visible_cards("1,-1,0").size(), 1U) << "behind -1 CUDA sees none";
}

TEST(VisibleCards, WhatCudaWouldPassOverIsAnError) {
  for (const char* text : {"0,x", "0,,1", "GPU-", "GPU-xyz", "MIG-GPU-1a", "MIG-GPU-1a/1", "MIG-GPU-1a/1/-2", "1.5"}) {
    expect_error<InvalidArgument>([&] { parse_visible_cards(text); }, "is no GPU; wanted numbers, GPU-<uuid>");
  }
  expect_error<InvalidArgument>([] { parse_visible_cards("0,1,0"); }, "names \"0\" twice");
}

TEST(VisibleCards, WhyOthersAreHiddenIsSaid) {
  EXPECT_EQ(why_cards_are_hidden(std::nullopt, 0), "");
  EXPECT_EQ(why_cards_are_hidden("", 0), "CUDA_VISIBLE_DEVICES is \"\", which hides every GPU");
  EXPECT_EQ(why_cards_are_hidden("3", 1), "CUDA_VISIBLE_DEVICES is \"3\", which shows one GPU");
  EXPECT_EQ(why_cards_are_hidden("3,1", 2), "CUDA_VISIBLE_DEVICES is \"3,1\", which shows 2 GPUs");
  EXPECT_EQ(why_cards_are_hidden("0,9", 1),
            "CUDA_VISIBLE_DEVICES is \"0,9\", which names 2, but CUDA finds 1: the driver knows no \"9\"");
  EXPECT_EQ(
      why_cards_are_hidden("MIG-1a,MIG-2b", 1),
      "CUDA_VISIBLE_DEVICES is \"MIG-1a,MIG-2b\", but CUDA gives a process one instance of a GPU, the first of them");
  EXPECT_NE(why_cards_are_hidden("0,x", 1).find("\"x\" is no GPU"), std::string::npos);
}

}  // namespace
}  // namespace cohort::visible_cards_test
