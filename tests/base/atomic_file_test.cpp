#include "base/atomic_file.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace cohort::atomic_file_test
