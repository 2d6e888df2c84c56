#include "base/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::shared_memory_test {
namespace {

using testing::expect_error;

TEST(SharedMemory, IsZeroAndTheSameForAll) {
  const auto own = SharedMemory::create(10'000);
  EXPECT_EQ(own->bytes().size(), 10'000U);
  EXPECT_TRUE(std::all_of(own->bytes().begin(), own->bytes().end(), [](std::byte b) { return b == std::byte{0}; }));
  const auto other = SharedMemory::open(own->handle(), 10'000);
  EXPECT_NE(own->bytes().data(), other->bytes().data());
  other->bytes()[9'999] = std::byte{7};
  EXPECT_EQ(own->bytes()[9'999], std::byte{7});
}

TEST(SharedMemory, IsReachedByAnotherProcessAndOutlivesIt) {
  const auto own = SharedMemory::create(100);
  const auto handle = own->handle();
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      SharedMemory::open(handle, 100)->bytes()[3] = std::byte{9};
      ::_exit(0);
    } catch (...) {
      ::_exit(1);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(own->bytes()[3], std::byte{9});
}

TEST(SharedMemory, IsClosedToOthersButStays) {
  const auto own = SharedMemory::create(100);
  const auto handle = own->handle();
  const auto other = SharedMemory::open(handle, 100);
  own->close();
  own->close();
  expect_error<Unavailable>([&] { SharedMemory::open(handle, 100); }, "[shared memory] /proc/");
  own->bytes()[0] = std::byte{5};
  EXPECT_EQ(other->bytes()[0], std::byte{5});
}

TEST(SharedMemory, AnotherFileIsRefused) {
  const auto own = SharedMemory::create(100);
  expect_error<Unavailable>([&] { SharedMemory::open(own->handle(), 200); }, "has 100 bytes instead of 200");
  expect_error<Unavailable>([&] { SharedMemory::open({.process = 1 << 30, .file = 3}, 100); },
                            "No such file or directory");
}

TEST(SharedMemory, NobodyCanTakeFromIt) {
  const auto own = SharedMemory::create(100);
  const auto handle = own->handle();
  EXPECT_NE(::ftruncate(static_cast<int>(handle.file), 0), 0);
  std::FILE* const file = std::tmpfile();
  ASSERT_EQ(::ftruncate(::fileno(file), 100), 0);
  expect_error<Unavailable>([&] { SharedMemory::open({.process = ::getpid(), .file = ::fileno(file)}, 100); },
                            "is no memory that was made to be shared");
  (void)std::fclose(file);
}

TEST(SharedMemory, WhatTheSystemDoesNotHaveIsSaid) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit little{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  expect_error<Unavailable>([] { SharedMemory::create(1 << 20); }, "the system has no 1048576 bytes: File too large");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_DFL);
}

}  // namespace
}  // namespace cohort::shared_memory_test
