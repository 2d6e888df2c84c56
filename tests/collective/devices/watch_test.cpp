#include "collective/devices/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "cohort/error.h"

namespace cohort::watch_test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A point that the test reaches.
class Point final : public DevicePoint {
 public:
  explicit Point(bool reached = false) : reached_(reached) {}
  void wait(torch::Device /*device*/) const override {}
  bool reached() const override {
    if (fails) throw std::runtime_error("the card is gone");
    return reached_;
  }
  void reach() { reached_ = true; }

  std::atomic<bool> fails = false;

 private:
  std::atomic<bool> reached_;
};

using Points = std::vector<std::shared_ptr<Point>>;

// A collective of two devices: begun by 0, begun by 1, ended by 0, ended by 1.
Points points(bool first_begun, bool second_begun) {
  return {std::make_shared<Point>(first_begun), std::make_shared<Point>(second_begun), std::make_shared<Point>(),
          std::make_shared<Point>()};
}

std::vector<CollectiveWatch::Part> parts(const Points& of) {
  return {{.who = "replica 0", .begun = of[0], .ended = of[2]}, {.who = "replica 1", .begun = of[1], .ended = of[3]}};
}

struct Watched {
  std::atomic<int> aborts = 0;
  std::string failure;
  CollectiveWatch watch;

  explicit Watched(milliseconds timeout, std::string wrong = {})
      : failure(std::move(wrong)),
        watch({.name = "nccl", .timeout = timeout, .ask = [this] { return failure; }, .abort = [this] { ++aborts; }}) {}

  // Returns what the watch throws within five seconds.
  template <typename Kind>
  std::string error() {
    for (int i = 0; i < 5000; ++i) {
      try {
        watch.require_well();
      } catch (const Kind& error) {
        while (aborts == 0) std::this_thread::sleep_for(milliseconds(1));
        return error.what();
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    return "nothing";
  }
};

TEST(CollectiveWatch, NamesTheDeviceThatHasNotCome) {
  Watched watched(milliseconds(50));
  const Points done = points(true, true);
  watched.watch.add("all_reduce of bucket 1, 64 bytes", parts(done));
  done[2]->reach();
  done[3]->reach();
  const Points stuck = points(true, false);
  watched.watch.add("all_reduce of bucket 2, 128 bytes", parts(stuck));
  EXPECT_THAT(watched.error<DeadlineExceeded>(),
              AllOf(HasSubstr("[collective] nccl: collective 2 (all_reduce of bucket 2, 128 bytes) has taken 50 ms: "),
                    HasSubstr("replica 1 has not come, while it waits on replica 0")));
  EXPECT_EQ(watched.aborts, 1);
  const auto entries = watched.watch.recorder().entries();
  ASSERT_EQ(entries.size(), 2);
  EXPECT_TRUE(entries[0].end && entries[0].error.empty());
  EXPECT_THAT(entries[1].error, HasSubstr("replica 1 has not come"));
  EXPECT_THROW(watched.watch.require_well(), DeadlineExceeded);
}

// The time counts from when a device waits for another, not from the call: devices may be busy with what came before.
TEST(CollectiveWatch, DevicesThatAreAllBusyAreNotLate) {
  Watched watched(milliseconds(20));
  const Points busy = points(false, false);
  watched.watch.add("all_reduce", parts(busy));
  std::this_thread::sleep_for(milliseconds(80));
  EXPECT_NO_THROW(watched.watch.require_well());
  for (const auto& point : busy) point->reach();
  std::this_thread::sleep_for(milliseconds(40));
  EXPECT_NO_THROW(watched.watch.require_well());
  EXPECT_TRUE(watched.watch.recorder().last()->end);
}

TEST(CollectiveWatch, TellsWhatTheLinkAndTheDevicesSay) {
  Watched link(std::chrono::minutes(1), "unhandled system error");
  link.watch.add("all_reduce", parts(points(true, true)));
  EXPECT_THAT(link.error<Unavailable>(),
              HasSubstr("collective 1 (all_reduce) has failed: unhandled system error; all have come, and it does "
                        "not end on replica 0, replica 1"));
  Watched device(std::chrono::minutes(1));
  const Points of = points(true, true);
  of[2]->fails = true;
  device.watch.add("all_reduce", parts(of));
  EXPECT_THAT(device.error<Unavailable>(),
              HasSubstr("a device has failed in collective 1 (all_reduce): the card is gone"));
}

}  // namespace
}  // namespace cohort::watch_test
