// Restoring: positions of other pipelines are refused, and epochs go on as they would have without the interruption.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <zlib.h>

#include <set>

#include "cohort/dataset.h"
#include "cohort/error.h"
#include "data/node.h"
#include "data/state.h"
#include "tests/support/errors.h"

namespace cohort::restore_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using Values = std::vector<int64_t>;

Dataset slices(int64_t count) {
  return Dataset::from_tensor_slices(torch::arange(count));
}

Values rest_of(Iterator& iterator) {
  Values list;
  while (auto example = iterator.next()) list.push_back(example->x.item<int64_t>());
  return list;
}

std::string state_after(const Dataset& dataset, int steps, const IteratorOptions& options = {.epoch = 0}) {
  Iterator iterator = dataset.iterator(options);
  for (int i = 0; i < steps; ++i) iterator.next();
  return iterator.save();
}

void expect_refused(const std::string& state, const Dataset& dataset, const char* why) {
  Iterator iterator = dataset.iterator();
  EXPECT_THROW(iterator.restore(state), InvalidArgument) << why;
}

TEST(Restore, PositionsOfOtherPipelinesAreRefused) {
  const Dataset rows = slices(10);
  const Dataset numbers = Dataset::range(10);
  expect_refused(state_after(rows.shuffle(4), 2), numbers.shuffle(4), "rows in a pipeline of examples");
  expect_refused(state_after(numbers.shuffle(4), 2), rows.shuffle(4), "examples in a pipeline of rows");
  expect_refused(state_after(rows.shuffle(8), 2), rows.shuffle(4), "more than the buffer holds");
  expect_refused(state_after(rows.batch(2), 1), rows, "another transformation");
  const auto twice = [](const Example& e) { return Dataset::from_tensor_slices(e.x.repeat({2})); };
  const auto turns = [&](int64_t cycle) { return numbers.interleave(twice, {.cycle_length = cycle}); };
  expect_refused(state_after(turns(4), 3), turns(2), "a longer cycle");
  expect_refused(state_after(turns(2), 3), turns(4), "a shorter cycle");
}

// The checksum is right, the numbers are not: as a writer with a bug, or an attacker, would leave them.
TEST(Restore, ImpossiblePositionsAreRefused) {
  const Dataset dataset = slices(10).shuffle(4);
  for (const char* damage :
       {R"({"shuffle": {"at": -5, "count": 10}})", R"({"shuffle": {"at": 11, "count": 10}})", R"({"buffer": [3, 10]})",
        R"({"buffer": [-2]})", R"({"buffer": "none"})", R"({"buffer": [[0, -1, -1]]})", R"({"random": "x"})"}) {
    IteratorState state = from_bytes(state_after(dataset, 2), "test");
    state.tree.merge_patch(nlohmann::json::parse(damage));
    expect_refused(to_bytes(state), dataset, damage);
  }
  Iterator counted = dataset.iterator();
  for (const char* damage : {R"({"pass": -1})", R"({"pass": 9223372036854775807})", R"({"position": null})"}) {
    IteratorState state = from_bytes(counted.save(), "test");
    state.tree.merge_patch(nlohmann::json::parse(damage));
    expect_refused(to_bytes(state), dataset, damage);
  }
  IteratorState turn = from_bytes(state_after(dataset, 2), "test");
  const auto whole = [](const Example& e) { return Dataset::from_tensors(e); };
  const Dataset interleaved = Dataset::range(3).interleave(whole, {.cycle_length = 2});
  turn = from_bytes(state_after(interleaved, 1), "test");
  turn.tree["turn"] = 2;
  expect_refused(to_bytes(turn), interleaved, "a turn beyond the cycle");
}

std::string packed(const char* tensors) {
  // The layout of state.h, by hand: what to_bytes() would never write.
  const std::string text = std::string(R"({"tree": {}, "tensors": )") + tensors + "}";
  const std::string whole = to_bytes({.tree = nlohmann::json::object(), .tensors = {}});
  std::string bytes = whole.substr(0, 8);
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>((text.size() >> (8 * i)) & 0xff));
  bytes += text;
  const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>((crc >> (8 * i)) & 0xff));
  return bytes;
}

TEST(Restore, TensorsThatCannotBeAreDataLoss) {
  for (const char* tensors :
       {R"([{"dtype": 9999, "shape": []}])", R"([{"dtype": -1, "shape": []}])", R"([{"dtype": 6, "shape": [-1]}])",
        R"([{"dtype": 6, "shape": [1]}])", R"([{"dtype": 6, "shape": [4611686018427387904, 4611686018427387904]}])",
        R"([{"dtype": 6, "shape": [0, 4611686018427387904, 4611686018427387904]}])", R"([{"dtype": 12, "shape": [0]}])",
        R"([{"dtype": 6}])", R"({"a": 1})", "7"}) {
    EXPECT_THROW(from_bytes(packed(tensors), "test"), DataLoss) << tensors;
  }
  EXPECT_EQ(from_bytes(packed(R"([{"dtype": 6, "shape": [0, 3]}])"), "test").tensors[0].sizes(),
            (at::IntArrayRef{0, 3}));
}

// A reshuffling dataset inside interleave() has the order of the epoch, also after a restore into an iterator that was
// made for another one.
TEST(Restore, InterleavedDatasetsFollowTheEpoch) {
  const auto shuffled = [](const Example&) { return slices(12).shuffle(12, {.seed = 5}); };
  const Dataset dataset = Dataset::range(3).interleave(shuffled);
  Iterator zero = dataset.iterator();
  Iterator one = dataset.iterator({.epoch = 1});
  const Values first = rest_of(zero);
  const Values second = rest_of(one);
  EXPECT_NE(first, second);
  Iterator restored = dataset.iterator();
  restored.restore(state_after(dataset, 5, {.epoch = 1}));
  EXPECT_EQ(rest_of(restored), Values(second.begin() + 5, second.end()));
}

// Also after a restore, for those that are open and for those that are opened later.
TEST(Restore, InterleavedDatasetsDrawNumbersOfTheirOwn) {
  const auto draw = [](const Example&, at::Generator generator) {
    return Example{.x = torch::randint(int64_t{1} << 40, {}, std::move(generator), torch::kLong)};
  };
  const auto drawn = [&](const Example&) { return slices(6).random_map(draw, {.seed = 5}); };
  const Dataset dataset = Dataset::range(4).interleave(drawn, {.cycle_length = 2});
  Iterator whole = dataset.iterator({.epoch = 1});
  const Values all = rest_of(whole);
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 24U);
  Iterator again = dataset.iterator({.epoch = 1});
  EXPECT_EQ(rest_of(again), all);
  Iterator restored = dataset.iterator();
  restored.restore(state_after(dataset, 5, {.epoch = 1}));
  EXPECT_EQ(rest_of(restored), Values(all.begin() + 5, all.end()));

  torch::manual_seed(7);
  const auto order_of = [](const ShuffleOptions& options) {
    Iterator iterator = Dataset::range(2)
                            .interleave([&](const Example&) { return slices(12).shuffle(12, options); })
                            .iterator({.epoch = 0});
    const Values both = rest_of(iterator);
    return std::pair(Values(both.begin(), both.begin() + 12), Values(both.begin() + 12, both.end()));
  };
  EXPECT_NE(order_of({}).first, order_of({}).second);
  EXPECT_EQ(order_of({.seed = 3}).first, order_of({.seed = 3}).second) << "an order that was asked for";
}

// With and without seeds, and after a restore. Datasets that are zipped draw by their seeds alone: pictures and their
// labels may be changed alike.
TEST(Restore, RandomMapsBehindEachOtherDrawOtherNumbers) {
  torch::manual_seed(7);
  const auto draw = [](const Example& example, at::Generator generator) {
    const torch::Tensor drawn = torch::randint(int64_t{1} << 40, {1}, std::move(generator), torch::kLong);
    return Example{.x = torch::cat({example.x.reshape({-1}), drawn})};
  };
  for (const RandomMapOptions& options : {RandomMapOptions{}, RandomMapOptions{.seed = 3}}) {
    const Dataset dataset = slices(6).random_map(draw, options).random_map(draw, options).random_map(draw, options);
    const auto all_of = [](Iterator iterator) {
      std::vector<torch::Tensor> rows;
      while (auto example = iterator.next()) rows.push_back(example->x.slice(0, 1));
      return torch::stack(rows);
    };
    const torch::Tensor all = all_of(dataset.iterator({.epoch = 0}));
    EXPECT_EQ(std::get<0>(torch::_unique(all)).numel(), 18);
    Iterator restored = dataset.iterator();
    restored.restore(state_after(dataset, 2));
    EXPECT_TRUE(torch::equal(all_of(std::move(restored)), all.slice(0, 2)));
  }
  const Dataset one = slices(6).random_map(draw, {.seed = 3});
  Iterator pairs = one.zip(one).iterator({.epoch = 0});
  while (auto pair = pairs.next()) EXPECT_TRUE(torch::equal(pair->x, pair->y));
}

// cache() holds one pass for all epochs. It must be the same one in a run that was interrupted in its first epoch, or
// after it, as in one that was not.
TEST(Restore, ACacheHoldsTheSamePassAfterAnInterruption) {
  const auto make = [] { return slices(20).shuffle(20, {.seed = 7}).cache(); };
  const Dataset straight = make();
  std::vector<Values> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    Iterator iterator = straight.iterator({.epoch = epoch});
    epochs.push_back(rest_of(iterator));
  }
  EXPECT_EQ(epochs[1], epochs[0]);
  const std::string in_the_second = state_after(straight, 8, {.epoch = 1});
  const Dataset later = make();
  Iterator restored = later.iterator({.epoch = 1});
  restored.restore(in_the_second);
  EXPECT_EQ(rest_of(restored), Values(epochs[1].begin() + 8, epochs[1].end()));
  Iterator next = later.iterator({.epoch = 2});
  EXPECT_EQ(rest_of(next), epochs[2]);
}

// Any chain of transformations, interrupted anywhere, twice.
TEST(Restore, ChainsOfTransformationsContinueExactly) {
  const auto plus_one = [](Example e) {
    e.x = e.x + 1;
    return e;
  };
  using Step = std::function<Dataset(const Dataset&)>;
  const std::vector<Step> steps{
      [](const Dataset& d) { return d.shuffle(6, {.seed = 2}); },
      [&](const Dataset& d) { return d.map(plus_one, {.num_parallel_calls = 2}); },
      [](const Dataset& d) { return d.repeat(2); },
      [](const Dataset& d) { return d.batch(3).prefetch(2).unbatch(); },
      [](const Dataset& d) { return d.skip(1).take(20); },
      [](const Dataset& d) { return d.prefetch(3); },
      [](const Dataset& d) { return d.filter([](const Example& e) { return e.x.item<int64_t>() % 4 != 0; }); },
      [](const Dataset& d) { return d.concatenate(Dataset::range(3)); },
  };
  for (std::size_t a = 0; a < steps.size(); ++a) {
    for (std::size_t b = 0; b < steps.size(); ++b) {
      const Dataset dataset = steps[b](steps[a](slices(12)));
      Iterator whole = dataset.iterator({.epoch = 2});
      const Values all = rest_of(whole);
      const auto point = static_cast<int>(a * 5 + b * 3) % static_cast<int>(all.size());
      Iterator once = dataset.iterator();
      once.restore(state_after(dataset, point, {.epoch = 2}));
      once.next();
      Iterator twice = dataset.iterator();
      twice.restore(once.save());
      const auto from = all.begin() + std::min<std::ptrdiff_t>(point + 1, static_cast<std::ptrdiff_t>(all.size()));
      EXPECT_EQ(rest_of(twice), Values(from, all.end())) << "steps " << a << " and " << b << " at " << point;
    }
  }
}

}  // namespace
}  // namespace cohort::restore_test
