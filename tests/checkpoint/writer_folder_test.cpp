#include "checkpoint/writer_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "cohort/checkpoint.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::writer_folder_test {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using testing::error_of;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::names_in;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

// A checkpoint of a few files, so that a writer can be stopped between them.
CheckpointData data_of(int writer) {
  CheckpointData data{.values = {{"writer", std::to_string(writer)}}};
  for (const char* name : {"a", "b", "c"}) data.bytes[name] = std::string(2000, static_cast<char>('0' + writer));
  return data;
}

// Takes the lock away from its holder, as a file server does that has not heard of the holder's machine for long.
void lose_lock(const fs::path& directory) {
  fs::remove(directory / ".writer");
}

// Returns whether the writer's draft reaches a file of the directory.
bool publishes(WriterFolder& writer, const fs::path& file) {
  const fs::path draft = writer.draft("result");
  write_file(draft, "whole");
  const std::string message = error_of<FailedPrecondition>([&] {
    writer.publish([&] {
      std::error_code error;
      fs::rename(draft, file, error);
      if (error) throw Unavailable(error.message());
    });
  });
  return message == "no error";
}

TEST(WriterFolder, HasTheNextEpochAndGoesWithItsWriter) {
  const TemporaryFolder folder;
  {
    const WriterFolder first(folder.path());
    EXPECT_THAT(names_in(folder.path()), ElementsAre(HasSubstr(".writer-0000000001-")));
    const WriterFolder second(folder.path());
    EXPECT_THAT(names_in(folder.path()), ElementsAre(HasSubstr(".writer-0000000002-")));
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

TEST(WriterFolder, WhatAKilledWriterHadPutAsideIsBackInItsPlace) {
  const TemporaryFolder folder;
  const fs::path left = folder / ".writer-0000000041-0123456789abcdef";
  fs::create_directories(left / "ckpt-3.before");
  write_file(left / "ckpt-3.before/a.bin", "the old one");
  fs::create_directories(left / "ckpt-4");
  fs::create_directories(left / "ckpt-5.before");
  fs::create_directories(folder / "ckpt-5");
  write_file(folder / "ckpt-5/a.bin", "the new one");
  const WriterFolder next(folder.path());
  EXPECT_THAT(names_in(folder.path()), ElementsAre(HasSubstr(".writer-0000000042-"), "ckpt-3", "ckpt-5"));
  EXPECT_EQ(read_file(folder / "ckpt-3/a.bin"), "the old one");
  EXPECT_EQ(read_file(folder / "ckpt-5/a.bin"), "the new one");
}

TEST(WriterFolder, OfManyThatBeginAtOnceOneGoesOn) {
  constexpr int kWriters = 4;
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    std::atomic<int> published = 0;
    std::barrier together(kWriters);
    std::vector<std::jthread> writers;
    for (int writer = 0; writer < kWriters; ++writer) {
      writers.emplace_back([&] {
        together.arrive_and_wait();
        std::unique_ptr<WriterFolder> own;
        const std::string begun =
            error_of<FailedPrecondition>([&] { own = std::make_unique<WriterFolder>(folder.path()); });
        together.arrive_and_wait();
        if (own && publishes(*own, folder / "result")) ++published;
        EXPECT_TRUE(own || begun.find("another run has taken it over") != std::string::npos) << begun;
      });
    }
    writers.clear();
    EXPECT_EQ(published, 1);
  }
}

TEST(WriterFolder, AWriterThatWasTakenOverReachesNothingAnyMore) {
  const TemporaryFolder folder;
  CheckpointManager first(folder.path(), {.asynchronous = false});
  first.save(1, data_of(1));
  lose_lock(folder.path());
  CheckpointManager second(folder.path(), {.asynchronous = false});
  const std::string message = error_of<FailedPrecondition>([&] { first.save(2, data_of(1)); });
  EXPECT_THAT(message, HasSubstr(folder.path().string() + " is no longer written by pid "));
  EXPECT_THAT(message, HasSubstr(" has taken it over"));
  expect_error<FailedPrecondition>([&] { first.save(1, data_of(1)); }, "is no longer written by");
  expect_error<FailedPrecondition>([&] { first.finish(); }, "is no longer written by");
  expect_error<FailedPrecondition>([&] { first.clear(); }, "is no longer written by");
  EXPECT_EQ(second.steps(), std::vector<int64_t>{1});
  EXPECT_FALSE(second.finished());
  second.save(3, data_of(2));
  EXPECT_EQ(second.steps(), (std::vector<int64_t>{1, 3}));
}

// Saves without end until it is no longer the writer; the same step over and over, and new ones that push out old ones.
[[noreturn]] void save_until_taken_over(const fs::path& directory) {
  try {
    CheckpointManager manager(directory, {.max_to_keep = 2, .asynchronous = false});
    for (int64_t step = 2;; ++step) manager.save(step / 2, data_of(1));
  } catch (const FailedPrecondition&) {
    std::_Exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::_Exit(1);
}

// A machine that does not answer is given up; then it goes on, in the middle of a call. COHORT_TRIALS says how often.
TEST(WriterFolder, AWriterStoppedAnywhereReachesNothingWhenItGoesOn) {
  const char* const given = std::getenv("COHORT_TRIALS");
  std::mt19937 random(7);  // NOLINT: the moments are what matters, and they repeat no better than the scheduler
  for (int trial = 0; trial < (given ? std::atoi(given) : 10); ++trial) {
    const TemporaryFolder folder;
    const pid_t writer = ::fork();
    if (writer == 0) save_until_taken_over(folder.path());
    while (!fs::exists(folder / "ckpt-2")) std::this_thread::yield();
    ::usleep(random() % 20'000);
    ::kill(writer, SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(writer, &status, WUNTRACED), writer);
    lose_lock(folder.path());
    CheckpointManager next(folder.path(), {.max_to_keep = 2, .asynchronous = false});
    const std::vector<int64_t> before = next.steps();
    ASSERT_FALSE(before.empty());
    const std::string pointer = read_file(folder / "checkpoint");
    ::kill(writer, SIGCONT);
    ASSERT_EQ(::waitpid(writer, &status, 0), writer);
    EXPECT_EQ(status, 0) << "trial " << trial;
    EXPECT_EQ(next.steps(), before) << "trial " << trial;
    EXPECT_EQ(read_file(folder / "checkpoint"), pointer) << "trial " << trial;
    for (const int64_t step : before) EXPECT_EQ(read_checkpoint(next.folder(step)).data.values.at("writer"), "1");
    next.save(before.back() + 1, data_of(2));
    EXPECT_EQ(next.latest(), before.back() + 1);
  }
}

}  // namespace
}  // namespace cohort::writer_folder_test
