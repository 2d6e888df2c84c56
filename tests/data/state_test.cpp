// Saved positions: every pipeline goes on from any point with the same elements.
#include "data/state.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/distributed_dataset.h"
#include "cohort/error.h"

namespace cohort::state_test {
namespace {

std::vector<torch::Tensor> rest_of(Iterator& iterator) {
  std::vector<torch::Tensor> list;
  while (auto example = iterator.next()) list.push_back(example->x);
  return list;
}

bool same(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!torch::equal(a[i], b[i])) return false;
  }
  return true;
}

std::vector<std::pair<std::string, Dataset>> pipelines() {
  const Dataset rows = Dataset::from_tensor_slices(torch::arange(40), torch::arange(40));
  const auto plus_one = [](Example e) {
    e.x = e.x + 1;
    return e;
  };
  const Dataset generated = Dataset::from_generator([] {
    return [i = 0]() mutable { return i < 40 ? std::optional<Example>({.x = torch::tensor(i++)}) : std::nullopt; };
  });
  const auto twice = [](const Example& e) { return Dataset::from_tensor_slices(e.x.repeat({2})); };
  return {
      {"shuffled rows", rows.shuffle(16, {.seed = 3}).repeat(2).batch(7)},
      {"shuffled examples", rows.map(plus_one).shuffle(16, {.seed = 3}).batch(7)},
      {"parallel map", rows.map(plus_one, {.num_parallel_calls = 3}).batch(3)},
      {"prefetch", rows.shuffle(9, {.seed = 1}).batch(3).prefetch(4)},
      {"window", rows.skip(3).shard(2, 1).take(15)},
      {"filter", rows.filter([](const Example& e) { return e.x.item<int64_t>() % 3 != 0; }).batch(4)},
      {"unbatch", rows.batch(6).unbatch()},
      {"zip", rows.zip(Dataset::range(30)).batch(4)},
      {"concatenate", rows.take(5).concatenate(rows.skip(30)).shuffle(4, {.seed = 2})},
      {"interleave", Dataset::range(9).interleave(twice, {.cycle_length = 3, .block_length = 2})},
      {"generator", generated.shuffle(5, {.seed = 2}).batch(3)},
      {"cache", rows.map(plus_one).cache().shuffle(8, {.seed = 6})},
      {"range", Dataset::range(0, 100, 7)},
  };
}

TEST(IteratorState, EveryPipelineContinuesFromEveryPoint) {
  for (const auto& [name, dataset] : pipelines()) {
    Iterator whole = dataset.iterator({.epoch = 1});
    const auto length = rest_of(whole).size();
    ASSERT_GT(length, 4U) << name;
    for (const std::size_t point : {std::size_t{0}, std::size_t{1}, length / 2, length - 1, length}) {
      Iterator running = dataset.iterator({.epoch = 1});
      for (std::size_t i = 0; i < point; ++i) running.next();
      const std::string state = running.save();
      const auto expected = rest_of(running);  // saving must not disturb
      Iterator restored = dataset.iterator();
      restored.restore(state);
      EXPECT_EQ(expected.size(), length - point) << name << " at " << point;
      EXPECT_TRUE(same(rest_of(restored), expected)) << name << " at " << point;
    }
  }
}

TEST(IteratorState, DamageAndStrangersAreRefused) {
  const Dataset rows = Dataset::from_tensor_slices(torch::arange(10));
  const std::string state = rows.shuffle(4).batch(2).iterator().save();
  Iterator other = rows.batch(2).iterator();
  EXPECT_THROW(other.restore(state), InvalidArgument);
  Iterator longer = Dataset::from_tensor_slices(torch::arange(11)).shuffle(4).batch(2).iterator();
  EXPECT_THROW(longer.restore(state), InvalidArgument);
  for (std::size_t at = 0; at < state.size(); ++at) {
    std::string damaged = state;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    Iterator iterator = rows.shuffle(4).batch(2).iterator();
    EXPECT_THROW(iterator.restore(damaged), DataLoss) << "byte " << at;
    EXPECT_THROW(iterator.restore(state.substr(0, at)), DataLoss) << "cut at " << at;
  }
}

TEST(IteratorState, APositionWithoutItsTensorsIsRefused) {
  const Dataset rows = Dataset::from_generator([] {
    return [i = 0]() mutable { return i < 10 ? std::optional<Example>({.x = torch::tensor(i++)}) : std::nullopt; };
  });
  const auto without_tensors = [](const std::string& state) {
    IteratorState parsed = from_bytes(state, "test");
    EXPECT_FALSE(parsed.tensors.empty());
    parsed.tensors.clear();
    return to_bytes(parsed);
  };
  const Dataset shuffled = rows.shuffle(4);
  Iterator alone = shuffled.iterator();
  alone.next();
  const std::string damaged = without_tensors(alone.save());
  EXPECT_THROW(alone.restore(damaged), InvalidArgument);
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  DistributedIterator together = strategy.distribute(shuffled.batch(2)).iterator();
  together.next();
  const std::string also = without_tensors(together.save());
  EXPECT_THROW(together.restore(also), InvalidArgument);
}

TEST(IteratorState, DistributedInputContinuesToo) {
  const MirroredStrategy strategy({.devices = cpu_devices(3)});
  const Dataset rows = Dataset::from_tensor_slices(torch::arange(50)).shuffle(20, {.seed = 5});
  for (const int64_t prefetch : {0, 3}) {
    const DistributedDataset batches = strategy.distribute(rows.batch(8), {.prefetch_steps = prefetch});
    const auto rest = [](DistributedIterator& iterator) {
      std::vector<torch::Tensor> list;
      while (const auto batch = iterator.next()) {
        for (const Example& share : *batch) list.push_back(share.x);
      }
      return list;
    };
    DistributedIterator running = batches.iterator({.epoch = 2});
    for (int i = 0; i < 3; ++i) running.next();
    const std::string state = running.save();
    DistributedIterator restored = batches.iterator();
    restored.restore(state);
    const auto expected = rest(running);
    EXPECT_EQ(expected.size(), 4U * 3U);
    EXPECT_TRUE(same(rest(restored), expected));
  }
}

}  // namespace
}  // namespace cohort::state_test
