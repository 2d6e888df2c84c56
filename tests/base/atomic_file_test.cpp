#include "base/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <set>

#include "cohort/error.h"
#include "tests/support/files.h"

namespace cohort::atomic_file_test {
namespace {

using testing::TemporaryFolder;

TEST(AtomicFile, AppearsWholeOrNotAtAll) {
  const TemporaryFolder folder;
  testing::write_file(folder / "f", "old");
  {
    AtomicFile file(folder / "f");
    file.write("new");
    EXPECT_EQ(testing::read_file(folder / "f"), "old");
  }
  EXPECT_EQ(testing::read_file(folder / "f"), "old");
  AtomicFile file(folder / "f");
  file.write("new");
  file.commit();
  EXPECT_EQ(testing::read_file(folder / "f"), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

// A file in the place of /dev/null would break the machine.
TEST(AtomicFile, TakesNoPlaceOfADevice) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(AtomicFile(folder / "pipe"), FailedPrecondition);
  EXPECT_THROW(AtomicFile("/dev/null"), FailedPrecondition);
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

void write_whole(const std::filesystem::path& file, std::string_view text) {
  AtomicFile out(file);
  out.write(text);
  out.commit();
}

// Leaves what a writer leaves that is killed before it commits.
void write_and_die(const std::filesystem::path& file) {
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile out(file);
    out.write("half");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

void age(const std::filesystem::path& file, time_t seconds) {
  const timespec then{.tv_sec = ::time(nullptr) - seconds, .tv_nsec = 0};
  const timespec times[] = {then, then};
  ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
}

// Process 1 of a container has the number of the one before it, which may have been killed.
TEST(AtomicFile, FilesOfAProcessOfTheSameNumberDoNotCollide) {
  const TemporaryFolder folder;
  for (int i = 0; i < 100; ++i) {
    testing::write_file(folder / ("f.tmp." + std::to_string(::getpid()) + "." + std::to_string(i)), "half");
  }
  write_whole(folder / "f", "new");
  EXPECT_EQ(testing::read_file(folder / "f"), "new");
}

TEST(AtomicFile, RemovesWhatAKilledWriterHasLeft) {
  const TemporaryFolder folder;
  write_and_die(folder / "f");
  EXPECT_EQ(names_in(folder.path()).size(), 1U);
  write_whole(folder / "other", "x");
  EXPECT_EQ(names_in(folder.path()).size(), 2U);
  write_whole(folder / "f", "new");
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"f", "other"}));
}

TEST(AtomicFile, LeavesTheFilesOfWritersThatLive) {
  const TemporaryFolder folder;
  AtomicFile slow(folder / "f");
  slow.write("slow");
  const std::string temporary = *names_in(folder.path()).begin();
  age(folder / temporary, 48 * 3600);
  write_whole(folder / "f", "quick");
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"f", temporary}));
  slow.commit();
  EXPECT_EQ(testing::read_file(folder / "f"), "slow");
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"f"}));
}

TEST(AtomicFile, LeavesWhatAnotherMachineMayBeWritingAndWhatIsNoneOfItsOwn) {
  const TemporaryFolder folder;
  const std::set<std::string> others{"f.tmp.deadbeef.0123456789abcdef", "f.tmp.backup", "f.tmp.1", "g.tmp.1.0"};
  for (const std::string& name : others) testing::write_file(folder / name, "half");
  write_whole(folder / "f", "new");
  EXPECT_EQ(names_in(folder.path()).size(), others.size() + 1);
  for (const std::string& name : others) age(folder / name, 25 * 3600);
  write_whole(folder / "f", "newer");
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"f", "f.tmp.backup", "f.tmp.1", "g.tmp.1.0"}));
}

}  // namespace
}  // namespace cohort::atomic_file_test
