// Examples with named columns, weights and masks go through every transformation, saved positions and distribution as
// those with x and y do.
#include "base/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/distributed_dataset.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/workers.h"

namespace cohort::columns_test {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;

// Every column tells the row: "rows" of them, beginning with "first".
Example table(int64_t rows, int64_t first = 0) {
  const torch::Tensor at = torch::arange(first, first + rows, torch::kDouble);
  return {.y = at + 0.5,
          .mask = at.remainder(2) == 0,
          .more = {at * 7},
          .inputs = {{"image", at.view({-1, 1, 1}).expand({-1, 2, 3}) * 2}, {"meta", at.to(torch::kLong)}},
          .targets = {{"class", at.to(torch::kInt)}},
          .weights = {{"class", at * 3}},
          .masks = {{"class", at.remainder(3) == 0}}};
}

std::vector<int64_t> rows_of(const Example& batch) {
  const torch::Tensor at = batch.inputs.at(1).second;
  const Example wanted = table(1000);
  const std::vector<torch::Tensor> all = columns_of(batch);
  const std::vector<torch::Tensor> expected = columns_of(wanted);
  EXPECT_TRUE(same_names(batch, wanted)) << list_columns(batch);
  EXPECT_EQ(all.size(), expected.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].defined(), expected[i].defined()) << i;
    if (!all[i].defined() || !expected[i].defined()) continue;
    EXPECT_TRUE(torch::equal(all[i], expected[i].index_select(0, at))) << "column " << i;
  }
  return {at.data_ptr<int64_t>(), at.data_ptr<int64_t>() + at.numel()};
}

std::vector<int64_t> rows_in(const Dataset& batches) {
  std::vector<int64_t> rows;
  for (const Example& batch : batches) {
    for (const int64_t row : rows_of(batch)) rows.push_back(row);
  }
  return rows;
}

std::vector<int64_t> counted(int64_t rows) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < rows; ++i) all.push_back(i);
  return all;
}

TEST(Columns, SizeIsThatOfTheFirstInput) {
  EXPECT_EQ(table(5).size(), 5);
  EXPECT_EQ(table(5).rows(1, 4).size(), 3);
  expect_error<InvalidArgument>(
      [] {
        (void)Example{.targets = {{"class", torch::zeros({3})}}}.size();
      },
      "named inputs");
  expect_error<InvalidArgument>([] { (void)Example{.inputs = {{"a", torch::zeros({})}}}.size(); }, "a scalar");
  EXPECT_EQ(
      list_columns(table(1)),
      "y, mask, inputs \"image\", inputs \"meta\", targets \"class\", weights \"class\", masks \"class\", 1 more");
  EXPECT_EQ(list_columns({}), "nothing");
}

TEST(Columns, GoThroughEveryTransformation) {
  const Dataset rows = Dataset::from_tensor_slices(table(11));
  EXPECT_EQ(rows_in(rows.batch(4)), counted(11));
  const auto same = [](Example example) { return example; };
  const Dataset examples = rows.map(same, {.num_parallel_calls = 2});
  EXPECT_EQ(rows_in(examples.batch(4)), counted(11));
  EXPECT_EQ(rows_in(examples.batch(4).unbatch().batch(3).prefetch(2)), counted(11));
  EXPECT_EQ(rows_in(rows.take(4).concatenate(examples.skip(4)).batch(4)), counted(11));
  EXPECT_THAT(rows_in(examples.shuffle(5, {.seed = 1}).batch(4)), ::testing::UnorderedElementsAreArray(counted(11)));
  const TemporaryFolder folder;
  for (const Dataset& cached : {examples.cache(), examples.cache(folder.path() / "kept")}) {
    EXPECT_EQ(rows_in(cached.batch(4)), counted(11));
    EXPECT_EQ(rows_in(cached.batch(4)), counted(11));
  }
  const auto never = [](Example) -> Example { throw std::runtime_error("the cache was not read"); };
  EXPECT_EQ(rows_in(rows.map(never).cache(folder.path() / "kept").batch(4)), counted(11));
}

TEST(Columns, AreInSavedPositions) {
  const Dataset data = Dataset::from_tensor_slices(table(20))
                           .map([](Example example) { return example; }, {.num_parallel_calls = 2})
                           .shuffle(6, {.seed = 3})
                           .batch(5)
                           .unbatch()
                           .batch(3);
  Iterator iterator = data.iterator({.epoch = 0});
  (void)iterator.next();
  const std::string position = iterator.save();
  Iterator other = data.iterator({.epoch = 0});
  other.restore(position);
  while (const std::optional<Example> wanted = iterator.next()) {
    const std::optional<Example> got = other.next();
    ASSERT_TRUE(got);
    EXPECT_EQ(rows_of(*got), rows_of(*wanted));
  }
  EXPECT_FALSE(other.next());
}

TEST(Columns, ThatDifferAreNamed) {
  expect_error<InvalidArgument>(
      [] {
        Example columns = table(4);
        columns.targets[0].second = torch::zeros({3});
        (void)Dataset::from_tensor_slices(columns);
      },
      "the input has 4 rows, targets \"class\" has shape [3]");
  const auto other_names = [](Example example) {
    if (example.inputs[1].second.item<int64_t>() == 2) example.targets[0].first = "box";
    return example;
  };
  expect_error<InvalidArgument>([&] { rows_in(Dataset::from_tensor_slices(table(4)).map(other_names).batch(4)); },
                                "batch: elements of different columns, ");
}

TEST(Columns, OfTwoDatasetsSideBySide) {
  const torch::Tensor at = torch::arange(4);
  const Dataset inputs = Dataset::from_tensor_slices({.inputs = {{"a", at}, {"b", at * 2}}});
  const Dataset targets = Dataset::from_tensor_slices({.inputs = {{"c", at * 3}}, .weights = {{"c", at * 4}}});
  const Example pair = *inputs.zip(targets).skip(2).iterator().next();
  EXPECT_EQ(list_columns(pair), "inputs \"a\", inputs \"b\", targets \"c\", weights \"c\"");
  EXPECT_EQ(pair.inputs[1].second.item<int64_t>(), 4);
  EXPECT_EQ(pair.targets[0].second.item<int64_t>(), 6);
  EXPECT_EQ(pair.weights[0].second.item<int64_t>(), 8);
  expect_error<InvalidArgument>([&] { (void)targets.zip(targets).iterator().next(); },
                                "zip: both elements have weights \"c\"");
}

TEST(Columns, AreCutIntoShares) {
  const MirroredStrategy strategy({.devices = cpu_devices(3)});
  const DistributedDataset data = strategy.distribute(Dataset::from_tensor_slices(table(13)).batch(6));
  std::vector<int64_t> rows;
  std::vector<int64_t> sizes;
  DistributedIterator iterator = data.iterator({.epoch = 0});
  DistributedIterator other = data.iterator({.epoch = 0});
  for (bool restored = false; const std::optional<GlobalBatch> batch = iterator.next(); restored = true) {
    if (restored) {
      const std::optional<GlobalBatch> same = other.next();
      ASSERT_TRUE(same);
      for (std::size_t i = 0; i < same->size(); ++i) EXPECT_EQ(rows_of((*same)[i]), rows_of((*batch)[i]));
    } else {
      other.restore(iterator.save());
    }
    for (const Example& share : *batch) {
      for (const int64_t row : rows_of(share)) rows.push_back(row);
      sizes.push_back(share.size());
    }
  }
  EXPECT_EQ(rows, counted(13));
  EXPECT_THAT(sizes, ::testing::ElementsAre(2, 2, 2, 2, 2, 2, 1, 0, 0));
}

// The second worker has no data at all, and learns from the first one what an empty share looks like.
TEST(Columns, OfEmptySharesAreLearnt) {
  std::mutex mutex;
  std::vector<int64_t> rows;
  testing::with_workers({.workers = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    const auto data = strategy.distribute_from_function([](const InputContext& context) {
      return Dataset::from_tensor_slices(table(context.input_pipeline_id == 1 ? 0 : 5)).batch(2);
    });
    for (const GlobalBatch& batch : data) {
      const std::lock_guard lock(mutex);
      const std::vector<int64_t> own = rows_of(batch[0]);
      const std::vector<int64_t> sizes = batch[0].inputs[0].second.sizes().vec();
      EXPECT_TRUE(strategy.worker_rank() != 1 || sizes == (std::vector<int64_t>{0, 2, 3})) << at::IntArrayRef(sizes);
      rows.insert(rows.end(), own.begin(), own.end());
    }
  });
  EXPECT_EQ(rows, counted(5));
}

}  // namespace
}  // namespace cohort::columns_test
