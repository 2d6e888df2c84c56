// The ring on a fake device, whose copies read their buffers late.
#include "data/staging_ring.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/fake_device.h"

namespace cohort::staging_ring_test {
namespace {

using std::chrono::milliseconds;
using testing::FakeDevice;

// Batch number i of so many rows; its labels are of another dtype.
Example numbered(int64_t i, int64_t rows) {
  return {.x = torch::full({rows, 3}, static_cast<double>(i)), .y = torch::full({rows}, 10 + i, torch::kLong)};
}

class StagingRing : public ::testing::Test {
 protected:
  cohort::StagingRing ring(const FakeDevice& device, int64_t buffers, milliseconds timeout = milliseconds(30'000)) {
    return {device.make_stream(torch::kCPU), buffers, timeout};
  }
};

TEST_F(StagingRing, LateCopiesGetTheValuesOfTheirBatch) {
  for (const int64_t buffers : {1, 2, 4}) {
    const FakeDevice device(milliseconds(2));
    cohort::StagingRing copies = ring(device, buffers);
    std::vector<cohort::StagingRing::Copied> sent;
    constexpr int64_t kBatches = 9;
    const auto rows_of = [](int64_t i) -> int64_t { return i == kBatches - 1 ? 2 : 5; };
    for (int64_t i = 0; i < kBatches; ++i) {
      Example batch = numbered(i, rows_of(i));
      sent.push_back(copies.begin(batch));
      batch.x.fill_(-1.0);  // it may be written to at once
      const int64_t under_way = device.counts().copies_begun - device.counts().copies_done;
      EXPECT_LE(under_way, 2 * buffers) << "x and y of a batch in each buffer";
    }
    for (int64_t i = 0; i < kBatches; ++i) {
      const auto& [batch, arrival] = sent[static_cast<std::size_t>(i)];
      arrival->wait({});
      EXPECT_TRUE(arrival->reached());
      EXPECT_TRUE(torch::equal(batch.x, numbered(i, rows_of(i)).x)) << i << " by " << buffers;
      EXPECT_TRUE(torch::equal(batch.y, numbered(i, rows_of(i)).y)) << i << " by " << buffers;
    }
    EXPECT_EQ(device.counts().page_locks, buffers) << "a short last batch has room";
  }
}

TEST_F(StagingRing, PagesAreLockedAgainForALargerBatchAlone) {
  const FakeDevice device(milliseconds(0));
  cohort::StagingRing copies = ring(device, 2);
  const auto locks_after = [&](int64_t rows) {
    const auto copied = copies.begin(numbered(rows, rows));
    copied.arrival->wait({});
    EXPECT_TRUE(torch::equal(copied.batch.x, numbered(rows, rows).x));
    return device.counts().page_locks.load();
  };
  EXPECT_EQ(locks_after(8), 1);
  EXPECT_EQ(locks_after(8), 2);
  EXPECT_EQ(locks_after(800), 3);
  EXPECT_EQ(locks_after(3), 3);
  EXPECT_EQ(locks_after(799), 3);
  EXPECT_EQ(locks_after(800), 4);
  EXPECT_EQ(locks_after(800), 4);
}

TEST_F(StagingRing, EveryDtypeAndEveryLayoutArrives) {
  const FakeDevice device(milliseconds(1));
  cohort::StagingRing copies = ring(device, 1);
  const torch::Tensor pictures = torch::arange(2 * 3 * 4 * 5).view({2, 3, 4, 5}).to(torch::kByte);
  Example batch{.x = pictures.contiguous(torch::MemoryFormat::ChannelsLast), .y = torch::ones({1}).expand({2, 7})};
  batch.more = {torch::arange(6.0, torch::kDouble).view({3, 2}).t(), torch::zeros({2, 0}),
                torch::ones({2}, torch::kBool), torch::arange(20, torch::kHalf).slice(0, 1, 20, 3), torch::tensor(7)};
  const auto [copied, arrival] = copies.begin(batch);
  arrival->wait({});
  EXPECT_TRUE(torch::equal(copied.x, batch.x));
  EXPECT_TRUE(torch::equal(copied.y, batch.y));
  EXPECT_FALSE(copied.weight.defined());
  for (std::size_t i = 0; i < batch.more.size(); ++i) EXPECT_TRUE(torch::equal(copied.more[i], batch.more[i])) << i;
}

TEST_F(StagingRing, ADeviceThatDoesNotCopyEndsInAnError) {
  const FakeDevice device(milliseconds(150));
  cohort::StagingRing copies = ring(device, 1, milliseconds(20));
  (void)copies.begin({.x = torch::ones({2})});
  const std::string message = testing::error_of<DeadlineExceeded>([&] { (void)copies.begin({.x = torch::ones({2})}); });
  EXPECT_EQ(message,
            "[data] copies to a device: waited 20 ms for the batch that came 1 step before to leave its buffer");
}

}  // namespace
}  // namespace cohort::staging_ring_test
