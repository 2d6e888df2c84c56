// These tests are about what an iterator keeps alive, what its threads share, and what their errors leave behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <future>
#include <thread>

#include "cohort/dataset.h"
#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::lifetime_test {
namespace {

using std::chrono::milliseconds;
using testing::error_of;
using ::testing::HasSubstr;

Dataset slices(int64_t count) {
  return Dataset::from_tensor_slices(torch::arange(count), torch::arange(count) * 10);
}

int64_t value_of(const std::optional<Example>& example) {
  return example ? example->x.item<int64_t>() : -1;
}

Example fails_at_3(Example example) {
  if (example.x.item<int64_t>() == 3) throw std::runtime_error("three");
  return example;
}

TEST(IteratorLifetime, AnIteratorKeepsItsPipelineAlive) {
  const auto token = std::make_shared<int64_t>(100);
  const std::weak_ptr<int64_t> watch = token;
  const auto iterator_of_temporaries = [](std::shared_ptr<int64_t> own) {
    return Dataset::range(4)
        .map([own](Example e) {
          e.x = e.x + *own;
          return e;
        })
        .filter([own](const Example& e) { return e.x.item<int64_t>() != *own + 1; })
        .repeat(2)
        .iterator();
  };
  auto first = std::make_unique<Iterator>(iterator_of_temporaries(token));
  EXPECT_GT(watch.use_count(), 1) << "the functions went with the dataset that held them";
  std::vector<int64_t> seen;
  while (auto example = first->next()) seen.push_back(value_of(example));
  EXPECT_EQ(seen, (std::vector<int64_t>{100, 102, 103, 100, 102, 103}));
  first.reset();
  EXPECT_EQ(watch.use_count(), 1) << "the iterator was the last to hold them";
}

TEST(IteratorLifetime, ALoopOverATemporaryKeepsItAlive) {
  int64_t sum = 0;
  for (const Example& example : Dataset::range(5).map([](Example e) { return e; }).prefetch(2)) {
    sum += example.x.item<int64_t>();
  }
  EXPECT_EQ(sum, 10);
}

// batch() asks for the table while the thread of prefetch() is at a border between two rounds, which replaces it.
TEST(IteratorLifetime, RowsPassThroughPrefetchWhileTheirSourceStartsAnew) {
  Iterator iterator = slices(2).shuffle(2, {.seed = 1}).repeat().prefetch(3).batch(4).iterator();
  for (int i = 0; i < 3000; ++i) {
    const Example batch = *iterator.next();
    ASSERT_EQ(batch.x.sum().item<int64_t>(), 2);
    ASSERT_TRUE(torch::equal(batch.x * 10, batch.y));
  }
}

TEST(Workers, ElementsBeforeAnErrorComeFirstAndTheOnesAfterItStill) {
  const Dataset broken_input = Dataset::range(6).map(fails_at_3);
  const auto same = [](Example e) { return e; };
  for (const Dataset& dataset : {Dataset::range(6).map(fails_at_3, {.num_parallel_calls = 4}),
                                 broken_input.map(same, {.num_parallel_calls = 4})}) {
    Iterator iterator = dataset.iterator();
    for (int64_t i = 0; i < 3; ++i) ASSERT_EQ(value_of(iterator.next()), i);
    EXPECT_EQ(error_of<std::runtime_error>([&] { iterator.next(); }), "three");
    EXPECT_EQ(value_of(iterator.next()), 4) << "an error arrives once";
    EXPECT_EQ(value_of(iterator.next()), 5);
    EXPECT_FALSE(iterator.next());
  }
}

TEST(Workers, APositionBehindAnErrorIsNotSavedAsTheEnd) {
  const Dataset parallel = Dataset::range(6).map(fails_at_3, {.num_parallel_calls = 4});
  const Dataset ahead = Dataset::range(6).map(fails_at_3).prefetch(8);
  for (const Dataset& dataset : {parallel, ahead}) {
    Iterator iterator = dataset.iterator();
    ASSERT_EQ(value_of(iterator.next()), 0);
    // The threads may still be on their way to the element that fails.
    std::string message;
    for (int i = 0; i < 20'000 && message != "three"; ++i) {
      message = error_of<std::runtime_error>([&] { iterator.save(); });
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_EQ(message, "three");
    EXPECT_EQ(value_of(iterator.next()), 1) << "saving took something away";
    EXPECT_EQ(value_of(iterator.next()), 2);
    EXPECT_EQ(error_of<std::runtime_error>([&] { iterator.next(); }), "three");
  }
}

TEST(Workers, AMapThatDoesNotReturnIsNamed) {
  std::promise<void> release;
  const auto stuck = [released = release.get_future().share()](Example e) {
    released.wait();
    return e;
  };
  Iterator iterator = Dataset::range(2).map(stuck, {.num_parallel_calls = 2, .timeout = milliseconds(10)}).iterator();
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { iterator.next(); }), HasSubstr("map: waited 10 ms for its function"));
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { iterator.save(); }), HasSubstr("map: waited 10 ms for its function"));
  release.set_value();
}

TEST(Workers, DestroyingAnIteratorDropsWhatHasNotBegun) {
  std::atomic<int> begun{0};
  const auto counted = [&](Example e) {
    begun.fetch_add(1);
    std::this_thread::sleep_for(milliseconds(20));
    return e;
  };
  {
    Iterator iterator = Dataset::range(1000).map(counted, {.num_parallel_calls = 2}).prefetch(1000).iterator();
    iterator.next();
  }
  const int at_the_end = begun.load();
  EXPECT_LT(at_the_end, 500) << "so many take 5 seconds";
  std::this_thread::sleep_for(milliseconds(60));
  EXPECT_EQ(begun.load(), at_the_end) << "a thread outlived its iterator";
}

TEST(Workers, ManyIteratorsOfOneDatasetDoNotDisturbEachOther) {
  const Dataset dataset = slices(50).shuffle(10, {.seed = 3}).batch(7).prefetch(2);
  std::vector<std::vector<torch::Tensor>> seen(4);
  {
    std::vector<std::jthread> threads;
    for (auto& list : seen) {
      threads.emplace_back([&] {
        Iterator iterator = dataset.iterator({.epoch = 0});
        while (const auto batch = iterator.next()) list.push_back(batch->x);
      });
    }
  }
  for (const auto& list : seen) EXPECT_TRUE(torch::equal(torch::cat(list), torch::cat(seen[0])));
}

}  // namespace
}  // namespace cohort::lifetime_test
