#include "cohort/data/tf_example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::tf_example_test {
namespace {

using testing::expect_error;

TFExample example() {
  TFExample made;
  made.set_bytes("image", {std::string("\xff\0\xd8", 3)});
  made.set_int64s("label", {-7});
  made.set_floats("box", {0.5F, 1.5F, -2.0F});
  made.set_bytes("words", {"a", "", "ccc"});
  made.set_int64s("none", {});
  return made;
}

TEST(TFExample, WhatWasSetIsRead) {
  const TFExample read = TFExample::parse(example().serialize());
  EXPECT_EQ(read.names(), (std::vector<std::string>{"box", "image", "label", "none", "words"}));
  EXPECT_EQ(read.bytes("image"), std::string_view("\xff\0\xd8", 3));
  EXPECT_EQ(read.int64("label"), -7);
  EXPECT_TRUE(torch::equal(read.float_list("box"), torch::tensor({0.5F, 1.5F, -2.0F})));
  EXPECT_EQ(read.bytes_list("words"), (std::vector<std::string_view>{"a", "", "ccc"}));
  EXPECT_EQ(read.int64_list("none").sizes(), (std::vector<int64_t>{0}));
  EXPECT_EQ(read.kind("box"), TFExample::Kind::kFloats);
  EXPECT_EQ(read.kind("nobody"), TFExample::Kind::kNone);
}

// The bytes are those that TensorFlow writes for {"a": int64 [1, 2]}, packed, and those that other writers write, one
// by one.
TEST(TFExample, TheFormatIsTensorFlows) {
  for (const std::string_view bytes : {std::string_view("\x0a\x0d\x0a\x0b\x0a\x01"
                                                        "a\x12\x06\x1a\x04\x0a\x02\x01\x02",
                                                        15),
                                       std::string_view("\x0a\x0d\x0a\x0b\x0a\x01"
                                                        "a\x12\x06\x1a\x04\x08\x01\x08\x02",
                                                        15)}) {
    const TFExample read = TFExample::parse(bytes);
    EXPECT_TRUE(torch::equal(read.int64_list("a"), torch::tensor({1, 2}, torch::kLong)));
  }
}

TEST(TFExample, WhatIsWrongIsSaid) {
  const TFExample made = example();
  const TFExample parsed = TFExample::parse(made.serialize(), "train-0, record at byte 16");
  expect_error<NotFound>([&] { (void)parsed.bytes("picture"); },
                         "[data] train-0, record at byte 16: there is no feature \"picture\"");
  expect_error<InvalidArgument>([&] { (void)parsed.bytes("label"); },
                                "train-0, record at byte 16: the feature \"label\" holds integers, wanted bytes");
  expect_error<NotFound>([&] { (void)made.bytes("picture"); }, "there is no feature \"picture\" among box image label");
  expect_error<InvalidArgument>([&] { (void)made.bytes("label"); }, "\"label\" holds integers, wanted bytes");
  expect_error<InvalidArgument>([&] { (void)made.bytes("words"); }, "\"words\" has 3 values, wanted one");
  expect_error<InvalidArgument>([&] { (void)made.int64("none"); }, "\"none\" has 0 values, wanted one");
  const std::string bytes = made.serialize();
  expect_error<DataLoss>([&] { (void)TFExample::parse(bytes.substr(0, bytes.size() - 1), "a.tfrecord"); },
                         "a.tfrecord: its");
}

}  // namespace
}  // namespace cohort::tf_example_test
