#include "base/regular_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::regular_file_test {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;
using testing::write_file;

TEST(RegularFile, IsReadWhole) {
  const TemporaryFolder folder;
  const std::string bytes = std::string(200'000, 'a') + '\0' + "b";
  write_file(folder / "file", bytes);
  std::filesystem::create_symlink(folder / "file", folder / "link");
  EXPECT_EQ(read_regular_file(folder / "file", "test"), bytes);
  EXPECT_EQ(read_regular_file(folder / "link", "test"), bytes);
  EXPECT_EQ(read_regular_file(folder / "none", "test"), std::nullopt);
  EXPECT_EQ(read_regular_file(folder / "file/none", "test"), std::nullopt);
  write_file(folder / "empty", "");
  EXPECT_EQ(read_regular_file(folder / "empty", "test"), "");
}

TEST(RegularFile, WhatIsNoFileIsNotWaitedFor) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error<FailedPrecondition>([&] { read_regular_file(folder / "pipe", "test"); },
                                   "[test] " + (folder / "pipe").string() + ": is a pipe, wanted a file");
  expect_error<FailedPrecondition>([&] { read_regular_file(folder.path(), "test"); }, "is a folder, wanted a file");
  expect_error<FailedPrecondition>([&] { read_regular_file("/dev/zero", "test"); }, "is a device, wanted a file");
  expect_error<FailedPrecondition>([&] { open_own_file(folder / "pipe", O_WRONLY, "test"); }, "is a pipe");
}

// A read of this file fails at its beginning, which nothing is mapped at.
TEST(RegularFile, AReadThatFailsIsAnError) {
  expect_error<Unavailable>([&] { read_regular_file("/proc/self/mem", "test"); },
                            "[test] /proc/self/mem: cannot be read: Input/output error");
}

TEST(RegularFile, APipeIsReadWhereItMayBeOne) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::thread writer([&] { write_file(folder / "pipe", "from a pipe"); });
  EXPECT_EQ(read_file_or_pipe(folder / "pipe", "test"), "from a pipe");
  writer.join();
}

TEST(RegularFile, ALinkIsNotWrittenThrough) {
  const TemporaryFolder folder;
  write_file(folder / "other", "precious");
  std::filesystem::create_symlink(folder / "other", folder / "link");
  std::filesystem::create_symlink(folder / "new", folder / "dangling");
  for (const char* name : {"link", "dangling"}) {
    const std::string message = "is a link, which would write to another place";
    expect_error<FailedPrecondition>([&] { open_own_file(folder / name, O_WRONLY | O_CREAT, "test"); }, message);
    expect_error<FailedPrecondition>([&] { require_own_file(folder / name, "test"); }, message);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  const int descriptor = open_own_file(folder / "own", O_WRONLY | O_CREAT, "test");
  ASSERT_GE(descriptor, 0);
  ::close(descriptor);
  require_own_file(folder / "own", "test");
  require_own_file(folder / "none", "test");
  EXPECT_EQ(open_own_file(folder / "none/own", O_WRONLY | O_CREAT, "test"), -1);
}

}  // namespace
}  // namespace cohort::regular_file_test
