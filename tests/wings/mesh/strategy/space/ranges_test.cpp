// The arithmetic of parts against a dimension that is computed as a whole.
#include "wings/mesh/strategy/space/ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace cohort::space::ranges_test {
namespace {

TEST(Ranges, PartsFollowEachOtherAndDifferByAtMostOneRow) {
  for (int64_t size = 0; size < 40; ++size) {
    for (int64_t parts = 1; parts < 9; ++parts) {
      int64_t end = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const Range own = part_of(size, parts, i);
        EXPECT_EQ(own.begin, end);
        EXPECT_GE(own.size(), size / parts);
        EXPECT_LE(own.size(), size / parts + 1);
        end = own.end;
      }
      EXPECT_EQ(end, size);
    }
  }
}

// Calls fn with many windows.
template <typename Fn>
void for_windows(const Fn& fn) {
  for (const int64_t kernel : {1, 2, 3, 5, 7}) {
    for (const int64_t stride : {1, 2, 3}) {
      for (const int64_t dilation : {1, 2, 4}) {
        for (const int64_t before : {0, 1, 3}) fn(Window{kernel, stride, dilation, before, before > 1 ? 1 : before});
      }
    }
  }
}

// The rows that an output sees, one by one.
std::set<int64_t> seen(const Window& window, int64_t output) {
  std::set<int64_t> rows;
  for (int64_t t = 0; t < window.kernel; ++t) rows.insert(output * window.stride - window.before + t * window.dilation);
  return rows;
}

TEST(Ranges, WindowsSeeTheirInputsAndNoMore) {
  for_windows([](const Window& window) {
    for (const int64_t size : {1, 6, 13}) {
      const int64_t outputs = window.outputs(size);
      for (int64_t begin = 0; begin < outputs; ++begin) {
        for (int64_t end = begin + 1; end <= outputs; ++end) {
          const Range inputs = window.inputs({begin, end});
          EXPECT_EQ(inputs.begin, *seen(window, begin).begin());
          EXPECT_EQ(inputs.end, *seen(window, end - 1).rbegin() + 1);
        }
      }
      if (outputs > 0) {
        EXPECT_LE(window.inputs({0, outputs}).end, size + window.after);
      }
      EXPECT_GT(window.inputs({0, outputs + 1}).end, size + window.after);
    }
  });
}

TEST(Ranges, TransposedConvolutionsComeFromTheirInputsAndNoMore) {
  for_windows([](const Window& window) {
    for (const int64_t size : {1, 4, 9}) {
      const int64_t outputs = (size - 1) * window.stride - 2 * window.before + window.reach();
      for (int64_t begin = 0; begin < outputs; ++begin) {
        for (int64_t end = begin + 1; end <= outputs; ++end) {
          const Range inputs = transposed_inputs(window, {begin, end}, size);
          int64_t first = size;
          int64_t last = -1;
          for (int64_t i = 0; i < size; ++i) {
            for (const int64_t output : seen(window, i)) {
              if (output < begin || output >= end) continue;
              first = std::min(first, i);
              last = std::max(last, i);
            }
          }
          if (last < 0) continue;  // gaps of a dilation: rows that add nothing may be fetched
          EXPECT_LE(inputs.begin, first);
          EXPECT_GE(inputs.end, last + 1);
          EXPECT_LE(inputs.size(), (end - begin + window.reach() - 1) / window.stride + 1);
        }
      }
    }
  });
}

// Every part gets exactly the rows that it needs and lacks, from those who have them, and what one sends another
// receives.
TEST(Ranges, TransfersFillAllNeeds) {
  for_windows([](const Window& window) {
    for (const int64_t size : {1, 2, 5, 11, 24}) {
      const int64_t outputs = window.outputs(size);
      if (outputs < 1) continue;
      for (int64_t parts = 2; parts < 7; ++parts) {
        const auto need_of = [&](const Range& out) { return window.inputs(out); };
        const std::vector<Range> needs = needs_of(size, outputs, parts, need_of);
        std::set<std::tuple<int64_t, int64_t, int64_t, int64_t>> sent, received;
        for (int64_t own = 0; own < parts; ++own) {
          const Transfers messages = transfers(size, needs, own);
          for (const Transfer& each : messages.sends) {
            EXPECT_TRUE(part_of(size, parts, own).holds(each.rows));
            sent.emplace(own, each.part, each.rows.begin, each.rows.end);
          }
          const Range need = needs[static_cast<std::size_t>(own)];
          int64_t have = common(need, part_of(size, parts, own)).size();
          for (const Transfer& each : messages.receives) {
            EXPECT_TRUE(need.holds(each.rows));
            received.emplace(each.part, own, each.rows.begin, each.rows.end);
            have += each.rows.size();
          }
          EXPECT_EQ(have, need.size());
        }
        EXPECT_EQ(sent, received);
      }
    }
  });
}

}  // namespace
}  // namespace cohort::space::ranges_test
