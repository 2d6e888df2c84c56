#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/data/datasets.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::cifar10_test {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;
using testing::write_file;

// Records whose pixels are (label + place) % 256.
std::string records(const std::vector<int>& labels) {
  std::string bytes;
  for (const int label : labels) {
    bytes.push_back(static_cast<char>(label));
    for (int i = 0; i < 3 * 32 * 32; ++i) bytes.push_back(static_cast<char>(label + i));
  }
  return bytes;
}

void write_all(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  for (int i = 1; i <= 5; ++i) write_file(folder / ("data_batch_" + std::to_string(i) + ".bin"), records({i, 9 - i}));
  write_file(folder / "test_batch.bin", records({7}));
}

TEST(Cifar10, TheBinaryFilesAreRead) {
  const TemporaryFolder folder;
  write_all(folder.path() / "cifar-10-batches-bin");
  for (const auto& place : {folder.path(), folder.path() / "cifar-10-batches-bin"}) {
    const auto [train, test] = datasets::cifar10(place);
    EXPECT_EQ(train.cardinality(), 10);
    EXPECT_EQ(test.cardinality(), 1);
    Iterator iterator = train.iterator();
    (void)iterator.next();
    const Example second = *iterator.next();
    EXPECT_EQ(second.y.item<int64_t>(), 8);
    EXPECT_EQ(second.x.sizes(), (std::vector<int64_t>{3, 32, 32}));
    EXPECT_EQ(second.x[1][2][3].item<int64_t>(), (8 + 1024 + 2 * 32 + 3) % 256);
  }
}

TEST(Cifar10, WhatIsMissingOrDamagedIsNamed) {
  const TemporaryFolder folder;
  expect_error<NotFound>([&] { (void)datasets::cifar10(folder.path()); }, "data_batch_1.bin: there is no such file");
  write_all(folder.path());
  write_file(folder.path() / "data_batch_3.bin", records({1}).substr(0, 3000));
  expect_error<DataLoss>([&] { (void)datasets::cifar10(folder.path()); }, "data_batch_3.bin: has 3000 bytes");
  write_file(folder.path() / "data_batch_3.bin", records({1, 10}));
  expect_error<DataLoss>([&] { (void)datasets::cifar10(folder.path()); },
                         "data_batch_3.bin: at byte 3073: holds the label 10");
}

}  // namespace
}  // namespace cohort::cifar10_test
