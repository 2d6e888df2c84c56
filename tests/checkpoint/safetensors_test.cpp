#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/types.h>

#include <csignal>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::safetensors_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::string file_with(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>((header.size() >> (8 * i)) & 0xff);
  return bytes + header + data;
}

std::string error_for(const std::string& bytes) {
  return error_of<DataLoss>([&] { parse_safetensors(std::as_bytes(std::span(bytes)), "w.safetensors"); });
}

TEST(Safetensors, EveryDtypeAndShapeComesBack) {
  const TemporaryFolder folder;
  NamedTensors tensors;
  for (const auto dtype : {torch::kDouble, torch::kFloat, torch::kHalf, torch::kBFloat16, torch::kLong, torch::kInt,
                           torch::kShort, torch::kChar, torch::kByte, torch::kBool}) {
    tensors.emplace_back(c10::str("of ", dtype), torch::arange(6).view({2, 3}).to(dtype));
  }
  tensors.emplace_back("scalar", torch::tensor(2.5));
  tensors.emplace_back("empty", torch::zeros({0, 4}));
  tensors.emplace_back("turned", torch::arange(6.0).view({2, 3}).t());
  save_weights(folder / "w.safetensors", tensors, {{"format", "pt"}});
  const Weights read = load_weights(folder / "w.safetensors");
  EXPECT_EQ(read.metadata.at("format"), "pt");
  ASSERT_EQ(read.tensors.size(), tensors.size());
  const std::map<std::string, torch::Tensor> by_name(read.tensors.begin(), read.tensors.end());
  for (const auto& [name, tensor] : tensors) {
    ASSERT_TRUE(by_name.contains(name)) << name;
    EXPECT_EQ(by_name.at(name).scalar_type(), tensor.scalar_type());
    EXPECT_TRUE(torch::equal(by_name.at(name), tensor)) << name;
  }
}

TEST(Safetensors, LaysBytesOutAsTheFormatSays) {
  const TemporaryFolder folder;
  save_weights(folder / "w", {{"b", torch::tensor({1, 2}, torch::kByte)}, {"a", torch::tensor({1.0F})}});
  const std::string bytes = testing::read_file(folder / "w");
  const auto length = static_cast<unsigned char>(bytes[0]);
  EXPECT_EQ(length % 8, 0);
  EXPECT_THAT(bytes.substr(8, length), HasSubstr(R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})"));
  EXPECT_THAT(bytes.substr(8, length), HasSubstr(R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]})"));
  EXPECT_EQ(bytes.substr(8 + length), std::string("\0\0\x80\x3f\x01\x02", 6));
}

TEST(Safetensors, DamageIsNamedWithItsPlace) {
  EXPECT_THAT(error_for("abc"), HasSubstr("3 bytes, wanted at least the 8"));
  EXPECT_THAT(error_for(std::string(8, '\xff')), HasSubstr("the header's length (bytes 0 to 7)"));
  EXPECT_THAT(error_for(file_with("{\"a\":", "")), HasSubstr("the header (from byte 8) is no JSON"));
  EXPECT_THAT(error_for(file_with("[]", "")), HasSubstr("the header is array, wanted an object"));
  EXPECT_THAT(error_for(file_with(R"({"a":1})", "")), HasSubstr("the entry of \"a\" is number"));
  EXPECT_THAT(error_for(file_with(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "")),
              HasSubstr("tensor \"a\" has no dtype"));
  EXPECT_THAT(error_for(file_with(R"({"a":{"dtype":"X9","shape":[1],"data_offsets":[0,4]}})", "")),
              HasSubstr("dtype \"X9\""));
  EXPECT_THAT(error_for(file_with(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "")),
              HasSubstr("a dimension is -1"));
  EXPECT_THAT(error_for(file_with(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234")),
              HasSubstr("do not hold the 8 bytes"));
  EXPECT_THAT(error_for(file_with(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "12")),
              HasSubstr("holds only 2 (it is cut short)"));
  EXPECT_THAT(error_for(file_with(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "12")),
              HasSubstr("begins at data byte 1, wanted 0"));
  EXPECT_THAT(error_for(file_with(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "12")),
              HasSubstr("1 bytes after the last tensor"));
  EXPECT_THAT(
      error_for(file_with(
          R"({"a":{"dtype":"F64","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,0]}})", "")),
      HasSubstr("is too large"));
}

TEST(Safetensors, BracketsWithoutEndAreRefused) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  for (const std::string& header : {R"({"a":{"dtype":)" + deep + R"(,"shape":[1],"data_offsets":[0,4]}})",
                                    R"({"a":{"dtype":"F32","shape":)" + deep + R"(,"data_offsets":[0,4]}})",
                                    R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + deep + "}}",
                                    R"({"__metadata__":{"a":)" + deep + "}}", std::string(200'000, '[')}) {
    EXPECT_THAT(error_for(file_with(header, "1234")), HasSubstr("has more than 10 levels of brackets"));
  }
}

TEST(Safetensors, EveryTruncationIsFound) {
  const TemporaryFolder folder;
  save_weights(folder / "w", {{"a", torch::rand({3})}, {"b", torch::rand({2})}});
  const std::string bytes = testing::read_file(folder / "w");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(error_for(bytes.substr(0, size)), HasSubstr("[weights] w.safetensors")) << size;
  }
}

TEST(Safetensors, WrongCallsAreNamed) {
  const TemporaryFolder folder;
  EXPECT_THROW(load_weights(folder / "none"), NotFound);
  EXPECT_THROW(save_weights(folder / "no" / "w", {}), NotFound);
  EXPECT_THROW(save_weights(folder / "w", {{"a", torch::zeros({1})}, {"a", torch::zeros({1})}}), InvalidArgument);
  EXPECT_THROW(save_weights(folder / "w", {{"a", torch::zeros({1}, torch::kComplexFloat)}}), InvalidArgument);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "a failed save leaves nothing behind";
}

TEST(Safetensors, ADiskThatTakesNoMoreIsAnErrorAndLeavesTheOldFile) {
  const TemporaryFolder folder;
  testing::write_file(folder / "f", "old");
  // A limit on the size of files stands for a full disk: write() fails in the middle.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of<Unavailable>([&] { save_weights(folder / "f", {{"a", torch::zeros({10'000})}}); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, HasSubstr("cannot be written"));
  EXPECT_EQ(testing::read_file(folder / "f"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace cohort::safetensors_test
