// The IDX reader on bytes from memory: every truncation and every damaged header byte is an error of ours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/data/datasets.h"
#include "cohort/error.h"
#include "data/readers/gzip.h"
#include "data/readers/idx.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/idx.h"

namespace cohort::idx_damage_test {
namespace {

using testing::error_of;
using testing::gzipped;
using ::testing::HasSubstr;
using testing::idx;
using testing::TemporaryFolder;
using testing::write_file;

torch::Tensor parse(const std::string& bytes) {
  const std::string plain = inflate_if_gzip(bytes, "file");
  return parse_idx(std::as_bytes(std::span(plain)), "file");
}

TEST(IdxDamage, SignedDtypes) {
  EXPECT_TRUE(torch::equal(parse(idx(0x09, {2}, "\x7f\x80")), torch::tensor({127, -128}, torch::kChar)));
  EXPECT_TRUE(torch::equal(parse(idx(0x0c, {2}, std::string("\0\1\0\0\xff\xff\xff\xfe", 8))),
                           torch::tensor({65536, -2}, torch::kInt)));
  EXPECT_EQ(parse(idx(0x08, {}, "\x05")).item<int64_t>(), 5) << "no dimensions: one value";
}

TEST(IdxDamage, EveryTruncationIsDataLoss) {
  const std::string plain = idx(0x0b, {2, 3}, "abcdefghijkl");
  for (const std::string& whole : {plain, gzipped(plain)}) {
    ASSERT_EQ(parse(whole).numel(), 6);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      EXPECT_THROW(parse(whole.substr(0, length)), DataLoss) << length << " of " << whole.size() << " bytes";
    }
  }
}

TEST(IdxDamage, EveryWrongHeaderByteIsDataLossOrAnotherDtypeOfTheSameSize) {
  const std::string whole = idx(0x08, {2, 3}, "abcdef");
  for (std::size_t at = 0; at < 12; ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(value);
      if (damaged == whole || (at == 2 && value == 0x09)) continue;
      EXPECT_THROW(parse(damaged), DataLoss) << "byte " << at << " is " << value;
    }
  }
}

TEST(IdxDamage, TrailingBytesAreDataLoss) {
  const std::string plain = idx(8, {2}, "ab");
  EXPECT_THAT(error_of<DataLoss>([&] { parse(plain + "c"); }), HasSubstr("wants 2 bytes from byte 8 on, found 3"));
  EXPECT_THAT(error_of<DataLoss>([&] { parse(gzipped(plain) + "garbage"); }),
              HasSubstr("gzip data is corrupt at byte"));
  EXPECT_THAT(error_of<DataLoss>([&] { parse(gzipped(plain) + gzipped("c")); }), HasSubstr("found 3"));
}

TEST(IdxDamage, SeveralGzipMembersAreOneFile) {
  const std::string plain = idx(8, {4}, "abcd");
  EXPECT_EQ(parse(gzipped(plain.substr(0, 9)) + gzipped(plain.substr(9)))[3].item<int64_t>(), 'd');
}

TEST(IdxDamage, AZeroAmongTheSizesHidesNoImpossibleOne) {
  constexpr uint32_t kMost = 0xffffffff;
  EXPECT_EQ(parse(idx(8, {0, kMost}, "")).sizes(), (at::IntArrayRef{0, int64_t{kMost}}));
  for (const auto& shape :
       {std::vector<uint32_t>{0, kMost, kMost, kMost}, {kMost, kMost, kMost, 0}, {kMost, 0, kMost, kMost}}) {
    EXPECT_THAT(error_of<DataLoss>([&] { parse(idx(8, shape, "")); }), HasSubstr("more bytes than there can be"));
  }
}

TEST(MnistFiles, AreFoundUnderTheirOtherNames) {
  const TemporaryFolder folder;
  const std::string image(784, '\xff');
  for (const char* part : {"train", "t10k"}) {
    write_file(folder / (std::string(part) + "-images.idx3-ubyte.gz"), gzipped(idx(8, {2, 28, 28}, image + image)));
    write_file(folder / (std::string(part) + "-labels-idx1-ubyte"), idx(8, {2}, "\x03\x09"));
  }
  const auto [train, test] = datasets::mnist(folder.path());
  EXPECT_EQ(train.cardinality(), 2);
  const Example both = *test.batch(2).iterator().next();
  EXPECT_TRUE(torch::equal(both.x, torch::ones({2, 28, 28})));
  EXPECT_TRUE(torch::equal(both.y, torch::tensor({3, 9}, torch::kLong)));
}

TEST(MnistFiles, OtherShapesAndLabelsAreRefused) {
  const TemporaryFolder folder;
  const auto message = [&] { return error_of<DataLoss>([&] { datasets::mnist(folder.path()); }); };
  write_file(folder / "train-labels-idx1-ubyte", idx(8, {1}, "\x0a"));
  write_file(folder / "train-images-idx3-ubyte", idx(8, {1, 28, 27}, std::string(756, 'a')));
  EXPECT_THAT(message(), HasSubstr("wanted bytes of shape [n, 28, 28]"));
  write_file(folder / "train-images-idx3-ubyte", idx(9, {1, 28, 28}, std::string(784, 'a')));
  EXPECT_THAT(message(), HasSubstr("wanted bytes of shape [n, 28, 28]"));
  write_file(folder / "train-images-idx3-ubyte", idx(8, {1, 28, 28}, std::string(784, 'a')));
  EXPECT_THAT(message(), HasSubstr("train-labels-idx1-ubyte: record 0 holds the label 10, wanted 0 to 9"));
}

}  // namespace
}  // namespace cohort::idx_damage_test
