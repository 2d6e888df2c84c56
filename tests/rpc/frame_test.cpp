#include "rpc/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <array>
#include <span>

#include "base/crc32c.h"
#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::frame_test {
namespace {

using rpc::FrameHead;
using testing::expect_error;

// Any message does; this one is there.
rpc::TensorHead message_of(std::vector<int64_t> numbers) {
  rpc::TensorHead message;
  for (const int64_t number : numbers) message.add_sizes(number);
  return message;
}

std::string bytes_of(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

// Returns a buffer in pieces of so many bytes, as a network delivers it.
grpc::ByteBuffer buffer_of(const std::string& bytes, std::size_t piece = 7) {
  std::vector<grpc::Slice> slices;
  for (std::size_t at = 0; at < bytes.size(); at += piece) slices.emplace_back(bytes.substr(at, piece));
  return {slices.data(), slices.size()};
}

std::string raw(const FrameHead& head, const std::string& payload = "") {
  const std::string text = head.SerializeAsString();
  const std::string all = text + payload;
  const std::array<uint32_t, 2> numbers = {static_cast<uint32_t>(text.size()), crc32c(std::as_bytes(std::span(all)))};
  return "CPS2" + std::string(reinterpret_cast<const char*>(numbers.data()), sizeof numbers) + all;
}

TEST(Frame, EveryDtypeAndShapeComesBack) {
  const std::vector<torch::Tensor> tensors = {
      torch::randn({3, 5}),
      torch::randn({2, 2}, torch::kDouble),
      torch::randn({4}).to(torch::kHalf),
      torch::randn({4}).to(torch::kBFloat16),
      torch::tensor(int64_t{-7}),
      torch::arange(5, torch::kInt),
      torch::arange(5).to(torch::kByte),
      torch::tensor({true, false}),
      torch::empty({0, 3}),
  };
  const std::string bytes = bytes_of(make_frame(message_of({1, 2, 3}), tensors));
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
    rpc::TensorHead message;
    FrameReader reader(buffer_of(bytes, piece), message);
    EXPECT_EQ(message.sizes_size(), 3);
    for (const torch::Tensor& wanted : tensors) {
      EXPECT_EQ(reader.dtype(), wanted.scalar_type());
      EXPECT_EQ(c10::IntArrayRef(reader.sizes()), wanted.sizes());
      EXPECT_TRUE(torch::equal(reader.take(), wanted));
    }
    reader.finish();
  }
}

TEST(Frame, ReadsIntoMemoryThatIsThere) {
  const torch::Tensor value = torch::randn({2, 3});
  const grpc::ByteBuffer frame = make_frame(message_of({}), std::vector{value, value.to(torch::kBFloat16), value});
  rpc::TensorHead message;
  FrameReader reader(frame, message);
  const torch::Tensor out = torch::zeros({2, 3});
  reader.take_into(out);
  EXPECT_TRUE(torch::equal(out, value));
  reader.take_into(out);
  EXPECT_TRUE(torch::equal(out, value.to(torch::kBFloat16).to(torch::kFloat))) << "converted";
  expect_error<DataLoss>([&] { reader.take_into(torch::zeros({6})); }, "a tensor of [2, 3] came, wanted [6]");
  expect_error<DataLoss>([&] { reader.finish(); }, "it has 1 tensors too many");
  (void)reader.take();
  expect_error<DataLoss>([&] { (void)reader.take(); }, "it has only 3 tensors");
}

TEST(Frame, SendsMemoryAsItIs) {
  const torch::Tensor value = torch::zeros({1000});
  const grpc::ByteBuffer frame = make_frame(message_of({}), std::vector{value});
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(frame.Dump(&slices).ok());
  EXPECT_EQ(static_cast<const void*>(slices.back().begin()), value.data_ptr());
}

TEST(Frame, CutAtAnyByteItIsRefused) {
  const std::string bytes = bytes_of(make_frame(message_of({5}), std::vector{torch::arange(4)}));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    rpc::TensorHead message;
    expect_error<DataLoss>([&] { FrameReader(buffer_of(bytes.substr(0, size)), message); }, "is damaged");
  }
  rpc::TensorHead message;
  expect_error<DataLoss>([&] { FrameReader(buffer_of(bytes + "x"), message); }, "should have 32 bytes, they have 33");
  expect_error<DataLoss>([&] { FrameReader(grpc::ByteBuffer(), message); }, "it is empty");
}

TEST(Frame, NonsenseIsRefusedBeforeMemoryIsTaken) {
  const auto refuse = [](const std::string& bytes, const std::string& problem) {
    rpc::TensorHead message;
    expect_error<DataLoss>([&] { FrameReader(buffer_of(bytes), message); }, problem);
  };
  const auto head_with = [](rpc::ElementType type, std::vector<int64_t> sizes) {
    FrameHead head;
    head.add_tensors()->set_type(type);
    for (const int64_t size : sizes) head.mutable_tensors(0)->add_sizes(size);
    return head;
  };
  refuse("CPS1aaaabbbbcccc", "it does not begin with CPS2");
  refuse("CPS2\xff\xff\xff\xff________", "its head of 4294967295 bytes is not there");
  refuse(std::string("CPS2\x03\0\0\0_______", 15), "its head is no message");
  refuse(raw(head_with(rpc::NONE, {1})), "elements of type 0");
  refuse(raw(head_with(static_cast<rpc::ElementType>(99), {1})), "elements of type 99");
  refuse(raw(head_with(rpc::UINT8, {-1})), "the sizes [-1]");
  const int64_t huge = int64_t{1} << 62;
  refuse(raw(head_with(rpc::FLOAT32, {huge, 4})), "a tensor has the sizes");
  refuse(raw(head_with(rpc::FLOAT32, {0, huge, huge})), "a tensor has the sizes");
  refuse(raw(head_with(rpc::FLOAT32, {1 << 30})), "should have 4294967296 bytes, they have 0");
  refuse(raw(head_with(rpc::UINT8, std::vector<int64_t>(65, 1)), "x"), "a tensor has the sizes");
  const FrameHead truth = head_with(rpc::BOOL, {3});
  rpc::TensorHead message;
  const grpc::ByteBuffer wrong = buffer_of(raw(truth, std::string("\1\0\2", 3)));
  FrameReader reader(wrong, message);
  expect_error<DataLoss>([&] { (void)reader.take(); }, "has other values than 0 and 1");
  FrameHead head;
  for (int i = 0; i < 3; ++i) {
    head.add_tensors()->set_type(rpc::UINT8);
    head.mutable_tensors(i)->add_sizes(huge);
    head.mutable_tensors(i)->add_sizes(1);
  }
  head.add_tensors()->set_type(rpc::UINT8);
  head.mutable_tensors(3)->add_sizes(huge);
  refuse(raw(head), "a tensor has the sizes");
}

TEST(Frame, AnyBitThatIsChangedOnTheWayIsNoticed) {
  const std::vector<torch::Tensor> tensors{torch::arange(9), torch::rand({3})};
  const std::string bytes = bytes_of(make_frame(message_of({5, 6}), tensors));
  for (std::size_t i = 0; i < 8 * bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i / 8] = static_cast<char>(changed[i / 8] ^ (1 << (i % 8)));
    rpc::TensorHead message;
    expect_error<DataLoss>([&] { FrameReader(buffer_of(changed), message); }, "is damaged");
  }
}

TEST(Frame, OnlyWhatFramesHaveIsSent) {
  expect_error<InvalidArgument>(
      [] { (void)make_frame(message_of({}), std::vector{torch::zeros({2}, torch::kComplexFloat)}); },
      "values of ComplexFloat cannot be sent");
  rpc::FrameHead large;
  large.set_message(std::string(5 << 20, 'x'));
  expect_error<InvalidArgument>([&] { (void)make_frame(large); }, "is too long");
}

}  // namespace
}  // namespace cohort::frame_test
