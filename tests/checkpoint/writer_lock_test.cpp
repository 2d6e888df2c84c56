#include "checkpoint/writer_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <thread>

#include "cohort/checkpoint.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::writer_lock_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::error_of;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::write_file;

const CheckpointManagerOptions kHasty{.lock_timeout = milliseconds(200)};

TEST(WriterLock, ASecondRunIsRefusedByTheNameOfTheFirst) {
  const TemporaryFolder folder;
  CheckpointManager first(folder.path());
  first.save(1, {.values = {{"epoch", "1"}}});
  first.wait();
  const std::string message = error_of<FailedPrecondition>([&] { CheckpointManager(folder.path(), kHasty); });
  EXPECT_THAT(message, HasSubstr(c10::str(folder.path().string(), " is written by pid ", ::getpid(), " on ")));
  EXPECT_THAT(message, HasSubstr(" UTC, which has not ended within 200 ms"));
  EXPECT_EQ(first.steps(), std::vector<int64_t>{1});

  // A reader is not refused.
  EXPECT_EQ(read_checkpoint(folder / "ckpt-1").data.values.at("epoch"), "1");
  EXPECT_EQ(CheckpointFollower(folder.path()).next(), folder / "ckpt-1");
}

TEST(WriterLock, WhoIsAboutToEndIsWaitedFor) {
  const TemporaryFolder folder;
  auto first = std::make_unique<WriterLock>(folder.path(), seconds(0));
  const std::jthread ending([&] {
    std::this_thread::sleep_for(milliseconds(300));
    first.reset();
  });
  const WriterLock second(folder.path(), seconds(30));
  EXPECT_TRUE(std::filesystem::exists(folder / ".writer"));
}

// Its file stays, but locks nothing, even if it names the pid of the next process, as in containers, where that is 1.
TEST(WriterLock, AKilledProcessLeavesNone) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const WriterLock lock(folder.path(), seconds(0));
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(std::filesystem::exists(folder / ".writer"));
  { const WriterLock next(folder.path(), seconds(0)); }
  EXPECT_FALSE(std::filesystem::exists(folder / ".writer"));
  write_file(folder / ".writer", c10::str("pid ", ::getpid(), " on this machine"));
  const WriterLock next(folder.path(), seconds(0));
}

// A machine that is lost has its locks until the file server notices.
TEST(WriterLock, OfAnotherMachineItIsWaitedForLonger) {
  const TemporaryFolder folder;
  write_file(folder / ".writer", "pid 7 on elsewhere, since yesterday\nanother boot\n");
  const int held = ::open((folder / ".writer").c_str(), O_RDWR | O_CLOEXEC);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  ASSERT_EQ(::fcntl(held, F_OFD_SETLK, &whole), 0);
  std::promise<void> done;
  const std::jthread waiting([&] {
    const WriterLock lock(folder.path(), milliseconds(100));
    done.set_value();
  });
  const auto got = done.get_future();
  EXPECT_EQ(got.wait_for(milliseconds(800)), std::future_status::timeout);
  ::close(held);
  EXPECT_EQ(got.wait_for(seconds(30)), std::future_status::ready);
}

TEST(WriterLock, AManagerThatWasClearedTakesItAgain) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run");
  manager.save(1, {});
  manager.clear();
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  { const CheckpointManager other(folder / "run", kHasty); }
  manager.save(2, {});
  EXPECT_EQ(manager.latest(), 2);
  expect_error<FailedPrecondition>([&] { CheckpointManager(folder / "run", kHasty); }, "is written by pid");

  write_file(folder / "run/notes.txt", "of the user");
  manager.clear();
  expect_error<FailedPrecondition>([&] { CheckpointManager(folder / "run", kHasty); }, "is written by pid");
}

TEST(WriterLock, AFolderThatCannotBeWrittenIsNamed) {
  EXPECT_THAT(error_of<Unavailable>([] { const WriterLock lock("/proc/self", seconds(0)); }),
              HasSubstr("/proc/self/.writer: cannot be opened"));
}

}  // namespace
}  // namespace cohort::writer_lock_test
