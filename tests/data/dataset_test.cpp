#include "cohort/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <future>
#include <numeric>
#include <set>
#include <thread>

#include "cohort/error.h"
#include "tests/support/files.h"

namespace cohort::dataset_test {
namespace {

using Values = std::vector<int64_t>;

// All x of a dataset in order, batches flattened.
Values values(const Dataset& dataset, const IteratorOptions& options = {.epoch = 0}) {
  Values list;
  Iterator iterator = dataset.iterator(options);
  while (auto example = iterator.next()) {
    const torch::Tensor flat = example->x.reshape({-1});
    for (int64_t i = 0; i < flat.numel(); ++i) list.push_back(flat[i].item<int64_t>());
  }
  return list;
}

Values numbers(int64_t count) {
  Values list(static_cast<std::size_t>(count));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

Dataset slices(int64_t count) {
  return Dataset::from_tensor_slices(torch::arange(count), torch::arange(count) * 10);
}

TEST(Dataset, SlicesYieldTheRowsOfAllColumns) {
  std::vector<int64_t> y;
  for (const Example& example : slices(3)) {
    EXPECT_EQ(example.x.dim(), 0);
    EXPECT_FALSE(example.weight.defined());
    y.push_back(example.y.item<int64_t>());
  }
  EXPECT_EQ(y, (Values{0, 10, 20}));
  EXPECT_THROW(Dataset::from_tensor_slices(torch::zeros({3}), torch::zeros({2})), InvalidArgument);
}

TEST(Dataset, RangeAndTensors) {
  EXPECT_EQ(values(Dataset::range(4)), numbers(4));
  EXPECT_EQ(values(Dataset::range(5, 0, -2)), (Values{5, 3, 1}));
  EXPECT_EQ(values(Dataset::range(0)), Values{});
  EXPECT_EQ(values(Dataset::from_tensors({.x = torch::tensor({7, 8})})), (Values{7, 8}));
  EXPECT_THROW(Dataset::range(0, 1, 0), InvalidArgument);
}

TEST(Dataset, BatchGathersAndKeepsOrDropsTheRest) {
  for (const Dataset& input : {slices(7), Dataset::range(7)}) {
    std::vector<int64_t> sizes;
    for (const Example& batch : input.batch(3)) sizes.push_back(batch.size());
    EXPECT_EQ(sizes, (Values{3, 3, 1}));
    EXPECT_EQ(values(input.batch(3)), numbers(7));
    EXPECT_EQ(values(input.batch(3, {.drop_remainder = true})), numbers(6));
    EXPECT_EQ(input.batch(3).cardinality(), 3);
    EXPECT_EQ(input.batch(3, {.drop_remainder = true}).cardinality(), 2);
  }
  EXPECT_THROW(slices(3).batch(0), InvalidArgument);
  const Dataset uneven = Dataset::range(2).map([](Example e) {
    e.x = torch::zeros({e.x.item<int64_t>() + 1});
    return e;
  });
  EXPECT_THROW(values(uneven.batch(2)), InvalidArgument);
}

// Examples of a map, which are stacked as they come.
TEST(Dataset, BatchStacksExamplesOfAnyLayout) {
  const auto fn = [](Example e) {
    const torch::Tensor rows = torch::arange(6).view({2, 3}) + 10 * e.x;
    e.more = {e.x.item<int64_t>() % 2 == 0 ? rows : rows.t().contiguous().t()};
    return e;
  };
  std::vector<torch::Tensor> more;
  Iterator batches = Dataset::range(11).map(fn).batch(5).iterator();
  while (const auto batch = batches.next()) more.push_back(batch->more[0]);
  ASSERT_EQ(more.size(), 3U);
  EXPECT_EQ(more[2].sizes(), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_TRUE(
      torch::equal(torch::cat(more), torch::arange(6).view({1, 2, 3}) + 10 * torch::arange(11).view({11, 1, 1})));
  // No memory is taken for rows that never come.
  EXPECT_EQ(Dataset::range(3).map(fn).batch(int64_t{1} << 50).iterator().next()->size(), 3);
}

TEST(Dataset, ABatchOfUnlikeExamplesIsRefusedAndLeftOut) {
  for (const int64_t odd : {0, 1, 3}) {
    for (const bool lacking : {false, true}) {
      const Dataset input = Dataset::range(8).map([=](Example e) {
        const bool unlike = e.x.item<int64_t>() == odd;
        if (!unlike) e.more = {torch::zeros({2})};
        if (unlike && !lacking) e.more = {torch::zeros({2}, torch::kLong)};
        return e;
      });
      Iterator batches = input.batch(4).iterator();
      EXPECT_THROW(batches.next(), InvalidArgument) << odd << lacking;
      EXPECT_TRUE(torch::equal(batches.next()->x, torch::arange(4, 8)));
    }
  }
}

TEST(Dataset, WhatComesBehindAnUnlikeExampleIsWrittenNowhere) {
  const torch::Tensor row = torch::zeros({1 << 20});
  const Dataset input = Dataset::range(256).map([=](Example e) {
    const int64_t i = e.x.item<int64_t>();
    e.more = {i == 0 || i == 255 ? row : torch::zeros({1})};
    return e;
  });
  EXPECT_THROW(input.batch(256).iterator().next(), InvalidArgument);
}

TEST(Dataset, ABatchDoesNotShareMemoryWithItsSource) {
  const torch::Tensor source = torch::arange(4);
  Example batch = *Dataset::from_tensor_slices(source).batch(4).iterator().next();
  batch.x.zero_();
  EXPECT_EQ(source[3].item<int64_t>(), 3);
}

TEST(Dataset, BatchOfImagesGathersWholeRows) {
  const torch::Tensor images = torch::rand({5, 3, 2});
  const Example batch = *Dataset::from_tensor_slices(images).skip(1).batch(3).iterator().next();
  EXPECT_TRUE(torch::equal(batch.x, images.slice(0, 1, 4)));
  const torch::Tensor strided = images.permute({0, 2, 1});
  EXPECT_TRUE(torch::equal(Dataset::from_tensor_slices(strided).batch(5).iterator().next()->x, strided));
}

TEST(Dataset, UnbatchUndoesBatch) {
  EXPECT_EQ(values(slices(7).batch(3).unbatch()), numbers(7));
  EXPECT_FALSE(slices(7).batch(3).unbatch().is_batched());
}

TEST(Dataset, ShuffleIsAPermutationThatDependsOnSeedAndEpoch) {
  const Dataset shuffled = slices(100).shuffle(30, {.seed = 4});
  const Values first = values(shuffled);
  EXPECT_NE(first, numbers(100));
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 100U);
  EXPECT_EQ(values(shuffled), first);
  EXPECT_NE(values(shuffled, {.epoch = 1}), first);
  EXPECT_NE(values(slices(100).shuffle(30, {.seed = 5})), first);
  const Dataset fixed = slices(100).shuffle(30, {.seed = 4, .reshuffle_each_iteration = false});
  EXPECT_EQ(values(fixed, {.epoch = 1}), values(fixed));
  // A small buffer cannot move the first elements to the end.
  EXPECT_LT(values(slices(100).shuffle(3, {.seed = 4}))[0], 3);
  EXPECT_EQ(values(slices(10).shuffle(1)), numbers(10));
}

TEST(Dataset, ShuffleDrawsUniformly) {
  std::array<int, 4> first{};
  for (uint64_t seed = 0; seed < 4000; ++seed)
    ++first[static_cast<std::size_t>(values(slices(4).shuffle(4, {.seed = seed}).take(1))[0])];
  for (const int count : first) EXPECT_NEAR(count, 1000, 120);
}

TEST(Dataset, RepeatReshufflesEachRound) {
  EXPECT_EQ(values(slices(2).repeat(3)), (Values{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(values(slices(2).repeat(0)), Values{});
  EXPECT_EQ(values(slices(3).repeat().take(7)), (Values{0, 1, 2, 0, 1, 2, 0}));
  EXPECT_EQ(values(slices(0).repeat()), Values{});
  const Values twice = values(slices(50).shuffle(50, {.seed = 1}).repeat(2));
  EXPECT_NE(Values(twice.begin(), twice.begin() + 50), Values(twice.begin() + 50, twice.end()));
  EXPECT_EQ(Values(twice.begin() + 50, twice.end()), values(slices(50).shuffle(50, {.seed = 1}), {.epoch = 1}));
}

TEST(Dataset, TakeSkipShardFilter) {
  EXPECT_EQ(values(slices(10).take(3)), numbers(3));
  EXPECT_EQ(values(slices(10).skip(7)), (Values{7, 8, 9}));
  EXPECT_EQ(values(slices(10).skip(20)), Values{});
  EXPECT_EQ(values(slices(10).shard(3, 1)), (Values{1, 4, 7}));
  EXPECT_EQ(slices(10).shard(3, 0).cardinality(), 4);
  EXPECT_THROW(slices(10).shard(3, 3), InvalidArgument);
  const Dataset even = slices(10).filter([](const Example& e) { return e.x.item<int64_t>() % 2 == 0; });
  EXPECT_EQ(values(even), (Values{0, 2, 4, 6, 8}));
  EXPECT_EQ(values(even.batch(2)), (Values{0, 2, 4, 6, 8}));
  EXPECT_EQ(even.cardinality(), kUnknownCardinality);
}

TEST(Dataset, ZipAndConcatenate) {
  const Example pair = *slices(5).zip(Dataset::range(5, 8)).skip(1).iterator().next();
  EXPECT_EQ(pair.x.item<int64_t>(), 1);
  EXPECT_EQ(pair.y.item<int64_t>(), 6);
  ASSERT_EQ(pair.more.size(), 1U);
  EXPECT_EQ(pair.more[0].item<int64_t>(), 10);
  EXPECT_EQ(slices(5).zip(Dataset::range(3)).cardinality(), 3);
  EXPECT_EQ(values(slices(2).concatenate(slices(3)).batch(4)), (Values{0, 1, 0, 1, 2}));
  EXPECT_EQ(slices(2).concatenate(slices(3)).cardinality(), 5);
}

TEST(Dataset, InterleaveTakesTurns) {
  const auto thrice = [](const Example& e) { return Dataset::from_tensor_slices(e.x.repeat({3})); };
  EXPECT_EQ(values(Dataset::range(3).interleave(thrice, {.cycle_length = 2, .block_length = 2})),
            (Values{0, 0, 1, 1, 0, 1, 2, 2, 2}));
  EXPECT_EQ(values(Dataset::range(2).interleave(thrice)), (Values{0, 0, 0, 1, 1, 1}));
}

TEST(Dataset, MapKeepsTheOrderWithSeveralThreads) {
  const auto slow_square = [](Example e) {
    std::this_thread::sleep_for(std::chrono::microseconds(e.x.item<int64_t>() % 3 == 0 ? 500 : 0));
    e.x = e.x * e.x;
    return e;
  };
  Values squares;
  for (int64_t i = 0; i < 50; ++i) squares.push_back(i * i);
  EXPECT_EQ(values(Dataset::range(50).map(slow_square)), squares);
  EXPECT_EQ(values(Dataset::range(50).map(slow_square, {.num_parallel_calls = 3})), squares);
}

TEST(Dataset, RandomNumbersBelongToTheElement) {
  const auto drawn = [](int threads, int64_t epoch, uint64_t seed, int64_t interrupt_at = -1) {
    const Dataset dataset = Dataset::range(20).random_map(
        [](Example example, at::Generator generator) {
          example.x = example.x + torch::rand({}, generator, torch::kDouble);
          return example;
        },
        {.seed = seed, .threads = {.num_parallel_calls = threads}});
    Iterator iterator = dataset.iterator({.epoch = epoch});
    std::vector<double> list;
    while (const auto example = iterator.next()) {
      list.push_back(example->x.item<double>());
      if (static_cast<int64_t>(list.size()) != interrupt_at) continue;
      const std::string state = iterator.save();
      iterator = dataset.iterator();
      iterator.restore(state);
    }
    return list;
  };
  const std::vector<double> wanted = drawn(1, 0, 7);
  EXPECT_EQ(wanted.size(), 20U);
  EXPECT_NE(wanted[0], wanted[1] - 1.0);
  EXPECT_EQ(drawn(3, 0, 7), wanted);
  EXPECT_NE(drawn(1, 1, 7), wanted);
  EXPECT_NE(drawn(1, 0, 8), wanted);
  EXPECT_EQ(drawn(1, 2, 7, 9), drawn(3, 2, 7)) << "a run that was interrupted";
  EXPECT_EQ(drawn(3, 2, 7, 9), drawn(1, 2, 7));
}

TEST(Dataset, WhatAFunctionThrowsArrivesAtNext) {
  const auto fail_at_3 = [](Example e) {
    if (e.x.item<int64_t>() == 3) throw std::runtime_error("three");
    return e;
  };
  for (const Dataset& dataset :
       {Dataset::range(9).map(fail_at_3), Dataset::range(9).map(fail_at_3, {.num_parallel_calls = 2}),
        Dataset::range(9).map(fail_at_3).prefetch(2)}) {
    Iterator iterator = dataset.iterator();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(iterator.next());
    try {
      iterator.next();
      FAIL() << "the error was lost";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "three");
    }
  }
}

TEST(Dataset, PrefetchWorksAheadAndEndsAtOnce) {
  std::atomic<int> made{0};
  const Dataset counted = Dataset::range(1000).map([&](Example e) {
    made.fetch_add(1);
    return e;
  });
  {
    Iterator iterator = counted.prefetch(5).iterator();
    iterator.next();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (made.load() < 6 && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_GE(made.load(), 6);
    EXPECT_LE(made.load(), 7);
  }
  EXPECT_EQ(values(Dataset::range(20).prefetch(3)), numbers(20));
  EXPECT_EQ(values(slices(20).prefetch(3).batch(4)), numbers(20));
}

TEST(Dataset, APrefetchThatGetsNothingGivesUp) {
  std::promise<void> release;
  const Dataset stuck = Dataset::range(1).map([released = release.get_future().share()](Example e) {
    released.wait();
    return e;
  });
  Iterator iterator = stuck.prefetch(1, {.timeout = std::chrono::milliseconds(20)}).iterator();
  EXPECT_THROW(iterator.next(), DeadlineExceeded);
  release.set_value();
}

TEST(Dataset, CacheReadsItsInputOnce) {
  const testing::TemporaryFolder folder;
  int made = 0;
  const Dataset counted = Dataset::range(5).map([&](Example e) {
    ++made;
    return e;
  });
  const Dataset memory = counted.cache();
  EXPECT_EQ(values(memory.take(2)), numbers(2));  // incomplete: not kept
  EXPECT_EQ(values(memory), numbers(5));
  EXPECT_EQ(values(memory), numbers(5));
  EXPECT_EQ(made, 2 + 5);
  made = 0;
  EXPECT_EQ(values(counted.cache(folder / "cache")), numbers(5));
  EXPECT_EQ(values(counted.cache(folder / "cache")), numbers(5));
  EXPECT_EQ(made, 5);
  testing::write_file(folder / "cache", testing::read_file(folder / "cache").substr(0, 60));
  EXPECT_THROW(values(counted.cache(folder / "cache")), DataLoss);
}

TEST(Dataset, BatchSizeIsInferred) {
  EXPECT_FALSE(slices(3).is_batched());
  EXPECT_TRUE(slices(3).batch(2).prefetch().is_batched());
  EXPECT_EQ(slices(3).batch(2).shuffle(2).repeat().map([](Example e) { return e; }).batch_size(), 2);
  const Dataset generated =
      Dataset::from_generator([] { return [] { return std::optional<Example>(); }; }, {.batched = true});
  EXPECT_TRUE(generated.is_batched());
  EXPECT_FALSE(generated.batch_size());
}

}  // namespace
}  // namespace cohort::dataset_test
