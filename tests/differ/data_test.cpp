// Compares random data pipelines with a plain interpreter of lists: elements of two passes, cardinality, the replicas'
// shares, and a saved and restored position.
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "cohort/cohort.h"
#include "tests/differ/pipeline.h"
#include "tests/differ/random.h"

namespace cohort::differ::data_test {
namespace {

Rows rows_of(const Example& e, bool batched) {
  Rows all;
  const torch::Tensor x = batched ? e.x : e.x.unsqueeze(0);
  const torch::Tensor y = !e.y.defined() || batched ? e.y : e.y.unsqueeze(0);
  for (int64_t i = 0; i < x.size(0); ++i) {
    all.push_back({x[i].item<int64_t>(), y.defined() ? std::optional(y[i].item<int64_t>()) : std::nullopt});
  }
  return all;
}

std::string text(const std::vector<Rows>& elements) {
  std::string all;
  for (const Rows& rows : elements) {
    all += " [";
    for (const Row& row : rows) all += c10::str(row.x, row.y ? c10::str("/", *row.y) : "", " ");
    all += "]";
  }
  return all;
}

struct DataRecipe {
  DataRecipe() = default;
  explicit DataRecipe(Random& random)
      : source(random.between(0, 2)),
        rows(random.between(0, 13)),
        replicas(random.between(1, 4)),
        position(random.between(0, 12)) {
    for (int64_t count = random.between(0, 7); count > 0; --count) {
      operations.push_back({static_cast<Kind>(random.between(0, static_cast<int64_t>(Kind::kCount) - 1)),
                            random.between(1, 7), random.between(0, 5), random.once_in(3)});
    }
  }

  std::string difference() const;
  std::vector<DataRecipe> simpler() const;
  std::string text() const;

  int64_t source = 0;
  int64_t rows = 1;
  int64_t replicas = 1;
  int64_t position = 0;  // number of steps before the distributed iterator is saved
  std::vector<Operation> operations;

 private:
  std::pair<Dataset, List> made() const;
  std::string elements(const Dataset& dataset, const List& wanted) const;
  std::string shares(const Dataset& dataset, const List& wanted) const;
};

std::string DataRecipe::text() const {
  static const char* const names[] = {"range", "slices", "generator"};
  std::string all = c10::str("  ", names[source], "(", rows, ")");
  for (const Operation& each : operations) all += "." + each.text();
  return c10::str(all, ", ", replicas, " replicas, saved after ", position, " steps\n");
}

std::vector<DataRecipe> DataRecipe::simpler() const {
  std::vector<DataRecipe> all;
  const auto with = [&](const std::function<void(DataRecipe&)>& change) {
    DataRecipe next = *this;
    change(next);
    if (next.text() != text()) all.push_back(std::move(next));
  };
  for (std::size_t i = 0; i < operations.size(); ++i) {
    with([i](DataRecipe& r) { r.operations.erase(r.operations.begin() + static_cast<int64_t>(i)); });
    with([i](DataRecipe& r) { r.operations[i].number = 1; });
    with([i](DataRecipe& r) { r.operations[i].second = 0; });
    with([i](DataRecipe& r) { r.operations[i].flag = false; });
  }
  with([](DataRecipe& r) { r.source = 0; });
  with([](DataRecipe& r) { r.rows = r.rows / 2; });
  with([](DataRecipe& r) { r.replicas = 1; });
  with([](DataRecipe& r) { r.position = 0; });
  return all;
}

Dataset source_of(int64_t source, int64_t rows) {
  if (source == 0) return Dataset::range(rows);
  if (source == 1) return Dataset::from_tensor_slices(torch::arange(rows));
  return Dataset::from_generator([rows] {
    return [rows, i = int64_t{0}]() mutable {
      return i < rows ? std::optional<Example>({.x = torch::scalar_tensor(i++, torch::kLong)}) : std::nullopt;
    };
  });
}

std::pair<Dataset, List> DataRecipe::made() const {
  Dataset dataset = source_of(source, rows);
  List list;
  for (int64_t i = 0; i < rows; ++i) list.elements.push_back({{i}});
  for (const Operation& each : operations) {
    if (!each.fits(list)) continue;
    dataset = each.on(dataset);
    list = each.on(list);
  }
  return {dataset, list};
}

std::string DataRecipe::elements(const Dataset& dataset, const List& wanted) const {
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<Rows> got;
    for (const Example& e : dataset) got.push_back(rows_of(e, wanted.batched));
    if (got != wanted.elements) {
      return c10::str("pass ", pass, " gives", data_test::text(got), ", wanted", data_test::text(wanted.elements));
    }
  }
  if (dataset.is_batched() != wanted.batched) return "is_batched() is wrong";
  const int64_t counted = dataset.cardinality();
  const auto count = static_cast<int64_t>(wanted.elements.size());
  if (counted != kUnknownCardinality && counted != count)
    return c10::str("cardinality() is ", counted, ", wanted ", count);
  return "";
}

// Checks that the replicas' shares are the rows of each batch in order, at most ceil(b / R) per replica. An iterator at
// another position restores the saved one and yields the remaining steps.
std::string DataRecipe::shares(const Dataset& dataset, const List& wanted) const {
  const Strategy strategy = MirroredStrategy({.devices = cpu_devices(static_cast<int>(replicas))});
  const DistributedDataset distributed = strategy.distribute(dataset, {.auto_shard = AutoShard::kData});
  const auto rest = [](DistributedIterator& iterator, int64_t most) {
    std::vector<GlobalBatch> all;
    while (static_cast<int64_t>(all.size()) < most) {
      auto batch = iterator.next();
      if (!batch) break;
      all.push_back(*batch);
    }
    return all;
  };
  const auto count = static_cast<int64_t>(wanted.elements.size());
  DistributedIterator iterator = distributed.iterator();
  const int64_t before = std::min(position, count);
  std::vector<GlobalBatch> steps = rest(iterator, before);
  const std::string saved = iterator.save();
  DistributedIterator restored = distributed.iterator();
  (void)rest(restored, position % 3);
  restored.restore(saved);
  for (GlobalBatch& each : rest(restored, count + 1)) steps.push_back(std::move(each));
  if (static_cast<int64_t>(steps.size()) != count) return c10::str("gives ", steps.size(), " steps, wanted ", count);
  for (int64_t i = 0; i < count; ++i) {
    const Rows& rows = wanted.elements[i];
    const auto size = static_cast<int64_t>(rows.size());
    const int64_t most = (size + replicas - 1) / replicas;
    Rows got;
    for (const Example& share : steps[i].values()) {
      const int64_t room = std::clamp<int64_t>(size - static_cast<int64_t>(got.size()), 0, most);
      if (share.size() != room) return c10::str("step ", i, " has a share of ", share.size(), ", wanted ", room);
      for (const Row& row : rows_of(share, /*batched=*/true)) got.push_back(row);
    }
    if (got != rows || steps[i].global_size() != size) {
      return c10::str("step ", i, " has", data_test::text({got}), ", wanted", data_test::text({rows}));
    }
  }
  return "";
}

std::string DataRecipe::difference() const {
  try {
    const auto [dataset, wanted] = made();
    std::string found = elements(dataset, wanted);
    if (found.empty() && wanted.batched) found = shares(dataset, wanted);
    return found;
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(Differ, RandomPipelinesOfData) {
  expect_no_difference<DataRecipe>(500);
}

}  // namespace
}  // namespace cohort::differ::data_test
