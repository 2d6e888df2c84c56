#include "data/readers/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/data/datasets.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/idx.h"

namespace cohort::idx_test {
namespace {

using testing::gzipped;
using ::testing::HasSubstr;
using testing::idx;
using testing::TemporaryFolder;
using testing::write_file;

template <typename Kind>
std::string reading(const std::filesystem::path& file) {
  return testing::error_of<Kind>([&] { read_idx(file); });
}

TEST(Idx, ReadsEveryDtypePlainAndPacked) {
  const TemporaryFolder folder;
  write_file(folder / "bytes", idx(8, {2, 3}, std::string("\x00\x01\x02\x03\x04\xff", 6)));
  EXPECT_TRUE(torch::equal(read_idx(folder / "bytes"), torch::tensor({0, 1, 2, 3, 4, 255}, torch::kByte).view({2, 3})));
  write_file(folder / "shorts", gzipped(idx(0x0b, {2}, std::string("\x01\x00\xff\xfe", 4))));
  EXPECT_TRUE(torch::equal(read_idx(folder / "shorts"), torch::tensor({256, -2}, torch::kShort)));
  write_file(folder / "float", idx(0x0d, {1}, std::string("\x3f\x80\x00\x00", 4)));
  EXPECT_TRUE(torch::equal(read_idx(folder / "float"), torch::ones({1})));
  write_file(folder / "double", idx(0x0e, {1}, std::string("\x3f\xf0\0\0\0\0\0\0", 8)));
  EXPECT_TRUE(torch::equal(read_idx(folder / "double"), torch::ones({1}, torch::kDouble)));
  write_file(folder / "empty", idx(8, {0, 5}, ""));
  EXPECT_EQ(read_idx(folder / "empty").sizes(), (at::IntArrayRef{0, 5}));
}

TEST(Idx, DamageIsNamedWithFileAndPlace) {
  const TemporaryFolder folder;
  EXPECT_THAT(reading<NotFound>(folder / "none"), HasSubstr("none: cannot be opened"));
  write_file(folder / "f", "\0\0");
  EXPECT_THAT(reading<DataLoss>(folder / "f"), HasSubstr("wanted at least the 4"));
  write_file(folder / "f", std::string("\0\0\x07\x01\0\0\0\x01x", 9));
  EXPECT_THAT(reading<DataLoss>(folder / "f"), HasSubstr("bytes 0 to 2 are 0, 0, 7"));
  write_file(folder / "f", std::string("\0\0\x08\x03\0\0", 6));
  EXPECT_THAT(reading<DataLoss>(folder / "f"), HasSubstr("header of 3 dimensions ends at byte 16, the file at 6"));
  write_file(folder / "f", idx(8, {10}, "123"));
  EXPECT_THAT(reading<DataLoss>(folder / "f"), HasSubstr("shape [10] wants 10 bytes from byte 8 on, found 3"));
  write_file(folder / "f", idx(8, {2}, "123"));
  EXPECT_THAT(reading<DataLoss>(folder / "f"), HasSubstr("wants 2 bytes from byte 8 on, found 3"));
  write_file(folder / "f", idx(0x0e, {0xffffffff, 0xffffffff, 0xffffffff}, ""));
  EXPECT_THAT(reading<DataLoss>(folder / "f"), HasSubstr("more bytes than there can be"));
}

TEST(Idx, DamagedGzipIsNamedWithItsOffset) {
  const TemporaryFolder folder;
  std::string values(5000, 'x');
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(i * 31 % 251);
  write_file(folder / "f.gz", gzipped(idx(8, {5000}, values)));
  const std::string whole = testing::read_file(folder / "f.gz");
  write_file(folder / "f.gz", whole.substr(0, whole.size() / 2));
  EXPECT_THAT(reading<DataLoss>(folder / "f.gz"), HasSubstr("gzip data ends too early at byte"));
  std::string corrupt = whole;
  corrupt[corrupt.size() - 6] ^= 0x55;  // in the checksum
  write_file(folder / "f.gz", corrupt);
  EXPECT_THAT(reading<DataLoss>(folder / "f.gz"), HasSubstr("gzip data is corrupt at byte"));
}

TEST(Mnist, MissingAndMismatchedFilesAreNamed) {
  const TemporaryFolder folder;
  try {
    datasets::mnist(folder.path());
    FAIL();
  } catch (const NotFound& error) {
    EXPECT_THAT(error.what(), HasSubstr("has no train-images-idx3-ubyte"));
  }
  write_file(folder / "train-images-idx3-ubyte", idx(8, {1, 28, 28}, std::string(784, 'a')));
  write_file(folder / "train-labels.idx1-ubyte", idx(8, {2}, "\1\2"));
  try {
    datasets::mnist(folder.path());
    FAIL();
  } catch (const DataLoss& error) {
    EXPECT_THAT(error.what(), HasSubstr("wanted a byte for each of the 1 images"));
  }
}

TEST(Mnist, ReadsTheRealFiles) {
  const auto folder = testing::real_data("mnist");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const auto [train, test] = datasets::mnist(folder);
  EXPECT_EQ(train.cardinality(), 60'000);
  EXPECT_EQ(test.cardinality(), 10'000);
  const Example first = *train.batch(4).iterator().next();
  EXPECT_EQ(first.x.sizes(), (at::IntArrayRef{4, 28, 28}));
  EXPECT_TRUE(torch::equal(first.y, torch::tensor({5, 0, 4, 1}, torch::kLong)));
  EXPECT_EQ(first.x.max().item<float>(), 1.0F);
}

}  // namespace
}  // namespace cohort::idx_test
