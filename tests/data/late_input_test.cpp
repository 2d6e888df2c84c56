// Functions of the user's that do not come back, and pipelines that look for an element without end: every wait ends,
// says whom it waited for, and so does the end of the iterator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <condition_variable>
#include <mutex>

#include "base/thread_pool.h"
#include "cohort/distributed_dataset.h"
#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::late_input_test {
namespace {

using ::testing::AnyOf;
using testing::error_of;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

// Holds up whoever calls wait() until the test ends. Its copies share that, so a thread that is left behind may have
// one.
class Gate {
 public:
  void wait() const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->open; });
  }
  void open() const {
    const std::lock_guard lock(state_->mutex);
    state_->open = true;
    state_->changed.notify_all();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class LateInput : public ::testing::Test {
 protected:
  ~LateInput() override { gate_.open(); }

  // Returns a function that does not come back from the element `at`.
  Dataset::Map stuck(int64_t at) const {
    return [gate = gate_, at](Example example) {
      if (example.x.item<int64_t>() == at) gate.wait();
      return example;
    };
  }
  // Returns the error of a strategy's iterator that goes to its end, and ends it.
  std::string error_under_strategy(const Dataset& dataset, std::chrono::milliseconds timeout = 200ms) const {
    return error_of<DeadlineExceeded>([&] {
      DistributedIterator iterator = strategy_.distribute(dataset.batch(2), {.timeout = timeout}).iterator();
      while (iterator.next()) {
      }
    });
  }

  Gate gate_;
  MirroredStrategy strategy_ = MirroredStrategy({.devices = cpu_devices(2)});
};

TEST_F(LateInput, AFunctionThatDoesNotComeBackEndsTheInput) {
  const std::string late = "distributed input: waited 200 ms for the next element of its input: ";
  const Dataset numbers = Dataset::range(20);
  EXPECT_THAT(error_under_strategy(numbers.map(stuck(5))), HasSubstr(late + "the function of map() has not returned"));
  EXPECT_THAT(error_under_strategy(numbers.map(stuck(5), {.num_parallel_calls = 3})),
              HasSubstr(late + "the function of map() has not returned"));
  EXPECT_THAT(error_under_strategy(numbers.map(stuck(5)).prefetch(2)),
              HasSubstr(late + "the function of map() has not returned"));
  EXPECT_THAT(error_under_strategy(numbers.filter([gate = gate_](const Example&) { return gate.wait(), true; })),
              AnyOf(HasSubstr(late + "the predicate of filter() has not returned"), HasSubstr(late + "filter() has")));
  EXPECT_THAT(
      error_under_strategy(numbers.interleave([gate = gate_](const Example&) {
        gate.wait();
        return Dataset::range(1);
      })),
      AnyOf(HasSubstr(late + "the function of interleave() has not returned"), HasSubstr(late + "interleave() has")));
  const auto generator = [gate = gate_](bool stuck_at_once) {
    return Dataset::from_generator([gate, stuck_at_once]() -> Dataset::Generator {
      if (stuck_at_once) gate.wait();
      return [gate]() -> std::optional<Example> { return gate.wait(), std::nullopt; };
    });
  };
  for (const bool at_once : {true, false}) {
    EXPECT_THAT(error_under_strategy(generator(at_once)),
                HasSubstr(late + "the function of from_generator() has not returned"));
  }
}

TEST_F(LateInput, TheTimeoutsOfTransformationsCountToo) {
  const Dataset numbers = Dataset::range(20);
  EXPECT_THAT(error_under_strategy(numbers.map(stuck(5), {.num_parallel_calls = 3, .timeout = 100ms}), 100s),
              HasSubstr("map: waited 100 ms for its function to return"));
  EXPECT_THAT(error_under_strategy(numbers.map(stuck(5)).prefetch(2, {.timeout = 100ms}), 100s),
              HasSubstr("prefetch: waited 100 ms for the next element of its input: the function of map()"));
  const auto plain = [&](const Dataset& dataset) {
    return error_of<DeadlineExceeded>([&] {
      for (const Example& example : dataset) (void)example;
    });
  };
  EXPECT_THAT(plain(numbers.map(stuck(3)).prefetch(2, {.timeout = 100ms})), HasSubstr("the function of map()"));
  EXPECT_THAT(plain(numbers.map(stuck(3), {.num_parallel_calls = 2, .timeout = 100ms})), HasSubstr("map: waited"));
}

TEST_F(LateInput, ASearchWithoutEndEndsWithItsIterator) {
  const std::string late = "distributed input: waited 200 ms for the next element of its input: ";
  const Dataset endless = Dataset::range(10).repeat();
  EXPECT_THAT(error_under_strategy(endless.filter([](const Example&) { return false; })),
              HasSubstr(late + "filter() has kept none of the elements that came"));
  EXPECT_THAT(error_under_strategy(endless.interleave([](const Example&) { return Dataset::range(0); })),
              HasSubstr(late + "interleave() has come upon no dataset with elements"));
  EXPECT_THAT(error_under_strategy(endless.filter([](const Example&) { return false; }).prefetch(2)),
              HasSubstr(late + "filter() has kept none"));
  DistributedIterator nothing = strategy_.distribute(Dataset::range(3).take(0).repeat().batch(2)).iterator();
  EXPECT_FALSE(nothing.next());
}

// Positions need the thread to stop between two elements.
TEST_F(LateInput, SavingAndRestoringHaveADeadline) {
  Iterator iterator = Dataset::range(4).map(stuck(1)).prefetch(1, {.timeout = 200ms}).iterator();
  const std::string begin = iterator.save();
  ASSERT_TRUE(iterator.next());
  EXPECT_THROW((void)iterator.next(), DeadlineExceeded);
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { (void)iterator.save(); }), HasSubstr("prefetch: waited 200 ms"));
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { iterator.restore(begin); }), HasSubstr("waited 200 ms for it to end"));
  gate_.open();
  iterator.restore(begin);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(iterator.next()->x.item<int64_t>(), i);
  EXPECT_FALSE(iterator.next());
}

TEST_F(LateInput, APoolLeavesAThreadBehind) {
  const auto ran = std::make_shared<std::atomic<int>>(0);
  ThreadPool pool(2);
  auto stuck = pool.submit([gate = gate_] { gate.wait(); });
  pool.submit([ran] { ++*ran; }).wait();
  EXPECT_FALSE(pool.end(100ms));
  gate_.open();
  stuck.wait();
  EXPECT_EQ(*ran, 1);
  ThreadPool idle(2);
  EXPECT_TRUE(idle.end(100s));
}

}  // namespace
}  // namespace cohort::late_input_test
