#include "cohort/data/tfrecord.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::tfrecord_test {
namespace {

using testing::expect_error;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

constexpr Compression kAll[] = {Compression::kNone, Compression::kGzip, Compression::kZlib};

std::string long_one() {
  std::string text(5'000'000, 'x');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761U >> 24);
  return text;
}

std::vector<std::string> records() {
  return {"first", "", std::string(1, '\0') + "zero", long_one(), "last"};
}

std::filesystem::path write(const TemporaryFolder& folder, const std::string& name,
                            const std::vector<std::string>& list, Compression compression = Compression::kNone) {
  std::filesystem::path file = folder.path() / name;
  TFRecordWriter writer(file, compression);
  for (const std::string& record : list) writer.write(record);
  writer.close();
  return file;
}

std::vector<std::string> read(TFRecordReader reader) {
  std::vector<std::string> list;
  while (const auto record = reader.next()) list.emplace_back(*record);
  return list;
}

TEST(TFRecord, WhatWasWrittenIsRead) {
  const TemporaryFolder folder;
  for (const Compression compression : kAll) {
    const auto file = write(folder, "a", records(), compression);
    EXPECT_EQ(read(TFRecordReader(file)), records());
    EXPECT_EQ(read(TFRecordReader(file, {.compression = compression})), records());
    EXPECT_EQ(read(TFRecordReader(write(folder, "empty", {}, compression))), std::vector<std::string>());
  }
}

// TensorFlow's own bytes for the record "hello".
TEST(TFRecord, TheFormatIsTensorFlows) {
  const TemporaryFolder folder;
  const auto file = write(folder, "a", {"hello"});
  const std::string bytes = read_file(file);
  ASSERT_EQ(bytes.size(), 8U + 4 + 5 + 4);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x05\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(bytes.substr(8, 4), "\xea\xb2\x04\x3e");
  EXPECT_EQ(bytes.substr(12, 5), "hello");
}

TEST(TFRecord, APositionIsFoundAgain) {
  const TemporaryFolder folder;
  for (const Compression compression : kAll) {
    const auto file = write(folder, "a", records(), compression);
    TFRecordReader reader(file);
    EXPECT_EQ(reader.offset(), 0);
    (void)reader.next();
    (void)reader.next();
    const int64_t offset = reader.offset();
    EXPECT_EQ(offset, 5 + 2 * 16);
    (void)reader.next();
    (void)reader.next();
    reader.seek(offset);
    EXPECT_EQ(*reader.next(), records()[2]);
    EXPECT_EQ(*reader.next(), records()[3]);
    reader.seek(0);
    EXPECT_EQ(*reader.next(), "first");
  }
}

TEST(TFRecord, WhatIsDamagedIsNamedWithItsPlace) {
  const TemporaryFolder folder;
  const auto file = write(folder, "a", {"first", "second", "third"});
  const std::string good = read_file(file);
  const auto read_all = [&] { (void)read(TFRecordReader(file, {.compression = Compression::kNone})); };

  write_file(file, good.substr(0, good.size() - 1));
  expect_error<DataLoss>(read_all, "a: at byte 43: a record of 5 bytes begins, but the file has 8 more");
  write_file(file, good.substr(0, 21 + 7));
  expect_error<DataLoss>(read_all, "at byte 21: the file ends within a record: 7 of 12 bytes are there");
  std::string bad = good;
  bad[21 + 13] ^= 1;
  write_file(file, bad);
  expect_error<DataLoss>(read_all, "at byte 21: the 6 bytes of the record are damaged");
  EXPECT_EQ(read(TFRecordReader(file, {.skip_damaged = true})), (std::vector<std::string>{"first", "third"}));
  bad = good;
  bad[21] ^= 1;
  write_file(file, bad);
  expect_error<DataLoss>(read_all, "at byte 21: the length of the record is damaged");
  TFRecordReader skipping(file, {.skip_damaged = true});
  EXPECT_EQ(*skipping.next(), "first");
  EXPECT_EQ(skipping.next(), std::nullopt);
  EXPECT_EQ(skipping.next(), std::nullopt);
  EXPECT_EQ(skipping.skipped(), 1);
  write_file(file, "this is none");
  expect_error<DataLoss>(read_all, "at byte 0: the length");
  expect_error<NotFound>([&] { TFRecordReader(folder.path() / "none"); }, "none: cannot be opened");
  expect_error<NotFound>([&] { TFRecordReader(folder.path()); }, "cannot be opened");
}

TEST(TFRecord, CompressedFilesThatAreDamagedAreNamed) {
  const TemporaryFolder folder;
  for (const Compression compression : {Compression::kGzip, Compression::kZlib}) {
    const auto file = write(folder, "z", records(), compression);
    const std::string good = read_file(file);
    write_file(file, good.substr(0, good.size() / 2));
    expect_error<DataLoss>([&] { (void)read(TFRecordReader(file)); }, "compressed data ends too early at byte");
    std::string bad = good;
    bad[bad.size() / 2] ^= 0x55;
    write_file(file, bad);
    expect_error<DataLoss>([&] { (void)read(TFRecordReader(file)); }, "");
  }
}

TEST(TFRecord, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  for (const Compression compression : kAll) {
    expect_error<Unavailable>(
        [&] {
          TFRecordWriter writer("/dev/full", compression);
          writer.write(long_one());
          writer.close();
        },
        "/dev/full: writing fails");
  }
  expect_error<Unavailable>([] { TFRecordWriter("/nowhere/a"); }, "/nowhere/a: cannot be made");
}

TEST(TFRecord, IsADataset) {
  const TemporaryFolder folder;
  const auto first = write(folder, "a", {"1", "22"});
  const auto none = write(folder, "b", {});
  const auto third = write(folder, "c", {"333", "4444", "55555"}, Compression::kGzip);
  const Dataset dataset = datasets::tfrecord({first, none, third});
  const auto sizes = [](Iterator iterator) {
    std::vector<int64_t> list;
    while (const auto record = iterator.next()) list.push_back(record->x.numel());
    return list;
  };
  EXPECT_EQ(sizes(dataset.iterator()), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(sizes(dataset.iterator({.file_shards = 2, .file_shard = 0})), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(sizes(dataset.iterator({.file_shards = 3, .file_shard = 2})), (std::vector<int64_t>{3, 4, 5}));
  for (int done = 0; done <= 5; ++done) {
    Iterator iterator = dataset.iterator();
    for (int i = 0; i < done; ++i) (void)iterator.next();
    Iterator other = dataset.iterator();
    other.restore(iterator.save());
    EXPECT_EQ(sizes(std::move(other)), sizes(std::move(iterator))) << done;
  }
  EXPECT_EQ(dataset.iterator().next()->x.scalar_type(), torch::kByte);
  expect_error<NotFound>([&] { (void)datasets::tfrecord({folder.path() / "none"}); }, "there is no such file");
}

TEST(TFRecord, CifarIsRead) {
  const auto folder = testing::real_data("tfds/cifar10/3.0.2");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no CIFAR-10 in " << folder;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().find("-test.tfrecord") != std::string::npos) files.push_back(entry.path());
  }
  int64_t count = 0;
  Iterator iterator = datasets::tfrecord(files).iterator();
  while (iterator.next()) ++count;
  EXPECT_EQ(count, 10'000);
}

}  // namespace
}  // namespace cohort::tfrecord_test
