#include "base/slices.h"

#include <gtest/gtest.h>

namespace cohort::slices_test {
namespace {

TEST(SlicesTest, CoverEverythingOnceInOrder) {
  for (const int64_t size : {0, 1, 15, 16, 17, 100, 4096, 100003}) {
    for (const int parts : {1, 2, 3, 8}) {
      int64_t at = 0;
      for (int part = 0; part < parts; ++part) {
        const Slice slice = slice_of(size, part, parts);
        EXPECT_EQ(slice.begin, at) << part << " of " << parts << " of " << size;
        EXPECT_GE(slice.size(), 0);
        at = slice.end;
      }
      EXPECT_EQ(at, size);
    }
  }
}

TEST(SlicesTest, BeginOnCacheLines) {
  EXPECT_EQ(slice_of(100, 0, 3).end, 48);
  EXPECT_EQ(slice_of(100, 1, 3).end, 96);
  EXPECT_EQ(slice_of(100, 2, 3).end, 100);
  EXPECT_EQ(slice_of(10, 1, 2).size(), 0) << "the last ones may be empty";
}

}  // namespace
}  // namespace cohort::slices_test
