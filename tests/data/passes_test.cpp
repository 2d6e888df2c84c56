// These tests are about the passes over a dataset: every loop is the next one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <set>
#include <thread>

#include "cohort/distributed_dataset.h"
#include "cohort/error.h"
#include "cohort/mirrored.h"
#include "tests/support/errors.h"

namespace cohort::passes_test {
namespace {

using testing::expect_error;
using Values = std::vector<int64_t>;

Values values(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.flatten().contiguous();
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

void append(Values& list, const torch::Tensor& tensor) {
  const Values more = values(tensor);
  list.insert(list.end(), more.begin(), more.end());
}

// Loops as a tutorial does.
Values loop(const Dataset& dataset) {
  Values list;
  for (const Example& example : dataset) append(list, example.x);
  return list;
}

Values loop(const DistributedDataset& dataset) {
  Values list;
  for (const GlobalBatch& batch : dataset) {
    for (const Example& share : batch) append(list, share.x);
  }
  return list;
}

Values rest(Iterator& iterator) {
  Values list;
  while (const auto example = iterator.next()) append(list, example->x);
  return list;
}

Values epoch(const Dataset& dataset, int64_t number) {
  Iterator iterator = dataset.iterator({.epoch = number});
  return rest(iterator);
}

Dataset shuffled(int64_t count = 100) {
  return Dataset::range(count).shuffle(count, {.seed = 3});
}

TEST(Passes, EveryLoopIsTheNextEpoch) {
  const Dataset data = shuffled().batch(10).prefetch();
  for (int64_t number = 0; number < 3; ++number) EXPECT_EQ(loop(data), epoch(data, number)) << number;
  EXPECT_NE(epoch(data, 0), epoch(data, 1));
  const Dataset again = shuffled().batch(10).prefetch();
  EXPECT_EQ(loop(again), epoch(data, 0)) << "from the program's start the same sequence";
  Iterator iterator = again.iterator();
  EXPECT_EQ(rest(iterator), epoch(data, 1)) << "iterator() as begin()";
  expect_error<InvalidArgument>([&] { (void)data.iterator({.epoch = -2}); }, "epoch is -2, wanted 0 or more");
}

TEST(Passes, WithoutReshufflingAllAreTheSame) {
  const Dataset data = Dataset::range(100).shuffle(100, {.seed = 3, .reshuffle_each_iteration = false});
  const Values first = loop(data);
  EXPECT_EQ(loop(data), first);
}

TEST(Passes, AugmentationIsDrawnAnew) {
  const auto augmented = [](int calls) {
    return Dataset::range(20).random_map(
        [](Example example, at::Generator generator) {
          example.x = torch::randint(1'000'000, {1}, generator, torch::kLong);
          return example;
        },
        {.seed = 1, .threads = {.num_parallel_calls = calls}});
  };
  const Dataset one = augmented(1);
  const Dataset two = augmented(2);
  const Values first = loop(one);
  EXPECT_EQ(loop(two), first);
  const Values second = loop(one);
  EXPECT_NE(second, first);
  EXPECT_EQ(loop(two), second);
}

TEST(Passes, WhatIsDerivedGoesOnWithTheCount) {
  const Dataset data = shuffled();
  const Dataset copy = data;
  EXPECT_EQ(loop(data.batch(7)), epoch(data, 0));
  EXPECT_EQ(loop(copy.batch(5)), epoch(data, 1)) << "as shuffled.batch(5) in a loop over epochs";
  EXPECT_EQ(loop(data.take(100)), epoch(data, 2));
  EXPECT_EQ(loop(Dataset::range(100).shuffle(100, {.seed = 3})), epoch(data, 0)) << "another shuffle counts for itself";
}

TEST(Passes, OfTwoIteratorsAtOnceEachIsItsOwn) {
  const Dataset data = shuffled();
  Iterator first = data.iterator();
  Iterator second = data.iterator();
  Values of_first;
  Values of_second;
  for (int i = 0; i < 100; ++i) {
    append(of_first, first.next()->x);
    append(of_second, second.next()->x);
  }
  EXPECT_EQ(of_first, epoch(data, 0));
  EXPECT_EQ(of_second, epoch(data, 1));
}

TEST(Passes, ThreadsTakeDifferentOnes) {
  const Dataset data = shuffled(20);
  std::array<Values, 8> orders;
  {
    std::vector<std::jthread> threads;
    for (Values& order : orders) threads.emplace_back([&] { order = loop(data); });
  }
  std::set<Values> wanted;
  for (int64_t number = 0; number < 8; ++number) wanted.insert(epoch(data, number));
  EXPECT_EQ(std::set<Values>(orders.begin(), orders.end()), wanted);
}

// A program that was cut in its third pass and goes on: the rest of that pass, then the fourth.
TEST(Passes, ARestoredIteratorIsCountedOnFrom) {
  const Dataset whole = shuffled();
  (void)loop(whole);
  (void)loop(whole);
  Iterator cut = whole.iterator();
  for (int i = 0; i < 30; ++i) (void)cut.next();
  const std::string position = cut.save();

  const Dataset again = shuffled();
  Iterator resumed = again.iterator();
  resumed.restore(position);
  EXPECT_EQ(rest(resumed), rest(cut));
  EXPECT_EQ(loop(again), loop(whole));
  EXPECT_EQ(loop(again), epoch(whole, 4));

  Iterator given = whole.iterator({.epoch = 7});
  const std::string of_given = given.save();
  const Dataset third = shuffled();
  Iterator other = third.iterator();
  other.restore(of_given);
  EXPECT_EQ(rest(other), epoch(whole, 7));
  EXPECT_EQ(loop(third), epoch(whole, 1)) << "an epoch that was given does not count";
}

TEST(Passes, DistributedLoopsReshuffleToo) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const Dataset data = shuffled().batch(10);
  (void)*data.begin();  // a look at the data
  const DistributedDataset distributed = strategy.distribute(data);
  EXPECT_EQ(loop(distributed), epoch(data, 0));
  EXPECT_EQ(loop(distributed), epoch(data, 1));
  EXPECT_EQ(loop(strategy.distribute(data)), epoch(data, 2)) << "distributed anew in every epoch";
  const DistributedDataset by_function =
      strategy.distribute_from_function([](const InputContext&) { return shuffled().batch(5); });
  EXPECT_EQ(loop(by_function), epoch(data, 0));
  EXPECT_EQ(loop(by_function), epoch(data, 1));
  const MirroredStrategy another({.devices = cpu_devices(2)});
  EXPECT_EQ(loop(another.distribute(data)), epoch(data, 0)) << "another strategy's passes are its own";
}

TEST(Passes, ARestoredDistributedIteratorIsCountedOnFrom) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto rest_of = [](DistributedIterator& iterator) {
    Values list;
    while (const auto batch = iterator.next()) {
      for (const Example& share : *batch) append(list, share.x);
    }
    return list;
  };
  const DistributedDataset whole = strategy.distribute(shuffled().batch(10));
  (void)loop(whole);
  DistributedIterator cut = whole.iterator();
  (void)cut.next();
  const std::string position = cut.save();
  const DistributedDataset again = strategy.distribute(shuffled().batch(10));
  DistributedIterator resumed = again.iterator();
  resumed.restore(position);
  EXPECT_EQ(rest_of(resumed), rest_of(cut));
  EXPECT_EQ(loop(again), loop(whole));
}

}  // namespace
}  // namespace cohort::passes_test
