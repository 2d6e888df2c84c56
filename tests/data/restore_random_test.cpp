// Random pipelines whose positions are saved anywhere and restored into iterators that are anywhere: the elements are
// those of a run without an interruption.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <random>

#include "cohort/data/tfrecord.h"
#include "cohort/dataset.h"
#include "cohort/distributed_dataset.h"
#include "tests/support/files.h"

namespace cohort::restore_random_test {
namespace {

using Values = std::vector<int64_t>;

Values rest_of(Iterator& iterator) {
  Values list;
  while (auto example = iterator.next()) list.push_back(example->x.item<int64_t>());
  return list;
}

void skip(Iterator& iterator, int64_t count) {
  for (int64_t i = 0; i < count; ++i) (void)iterator.next();
}

// Makes pipelines of scalars; the same seed makes the same pipeline.
class Pipelines {
 public:
  Pipelines(const std::filesystem::path& folder, uint32_t seed) : folder_(folder), random_(seed) {
    TFRecordWriter writer(folder_ / "records");
    for (int i = 0; i < 7; ++i) writer.write(std::string(1, static_cast<char>('a' + i)));
    writer.close();
  }

  Dataset make() {
    Dataset made = source();
    for (int64_t count = below(5); count >= 0; --count) made = transformed(made);
    return made;
  }

  std::string description;

 private:
  int64_t below(int64_t bound) { return std::uniform_int_distribution<int64_t>(0, bound - 1)(random_); }

  Dataset source() {
    const int64_t count = 1 + below(12);
    switch (below(4)) {
      case 0:
        return Dataset::range(count);
      case 1:
        return Dataset::from_tensor_slices(torch::arange(count));
      case 2:
        return Dataset::from_generator([count] {
          return [count, i = int64_t{0}]() mutable {
            return i < count ? std::optional<Example>({.x = torch::scalar_tensor(i++, torch::kLong)}) : std::nullopt;
          };
        });
      default:
        return datasets::tfrecord({folder_ / "records"}).map([](Example e) {
          e.x = e.x[0].to(torch::kLong);
          return e;
        });
    }
  }

  Dataset transformed(const Dataset& input) {
    const int64_t n = 1 + below(6);
    const auto seed = static_cast<uint64_t>(below(100));
    const auto plus = [](int64_t k) {
      return [k](Example e) {
        e.x = e.x + k;
        return e;
      };
    };
    const auto named = [&](const char* name) { description += std::string(" ") + name + std::to_string(n); };
    switch (below(14)) {
      case 0:
        return named("map"), input.map(plus(n), {.num_parallel_calls = static_cast<int>(1 + below(3))});
      case 1:
        return named("random_map"), input.random_map(
                                        [](Example e, at::Generator generator) {
                                          e.x = torch::randint(1000, {}, generator, torch::kLong);
                                          return e;
                                        },
                                        {.seed = seed});
      case 2:
        return named("batch"), input.batch(n).unbatch();
      case 3:
        return named("shuffle"), input.shuffle(n, {.seed = seed, .reshuffle_each_iteration = below(2) == 0});
      case 4:
        return named("repeat"), input.repeat(1 + n % 3);
      case 5:
        return named("take"), input.take(2 * n);
      case 6:
        return named("skip"), input.skip(n % 4);
      case 7:
        return named("filter"), input.filter([n](const Example& e) { return e.x.item<int64_t>() % (n + 1) != 0; });
      case 8:
        return named("zip"), input.zip(input.shuffle(3, {.seed = seed})).map([](Example e) {
          e.x = 10 * e.x + std::exchange(e.y, {});
          return e;
        });
      case 9:
        return named("concatenate"), input.concatenate(Dataset::range(n));
      case 10:
        return named("interleave"), input.interleave(
                                        [](const Example& e) {
                                          const int64_t of = e.x.item<int64_t>();
                                          return Dataset::range(of, of + of % 3 + 1).shuffle(2, {.seed = 5});
                                        },
                                        {.cycle_length = n, .block_length = 1 + n % 2});
      case 11:
        return named("prefetch"), input.prefetch(n);
      case 12:
        return named("cache-file"), input.cache(folder_ / ("cache" + std::to_string(files_++)));
      default:
        return named("cache"), input.cache();
    }
  }

  std::filesystem::path folder_;
  std::mt19937 random_;
  int files_ = 0;
};

// A run: the elements of epochs 0 to 2.
std::vector<Values> run(const Dataset& dataset) {
  std::vector<Values> passes;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    Iterator iterator = dataset.iterator({.epoch = epoch});
    passes.push_back(rest_of(iterator));
  }
  return passes;
}

// Makes the folder that of a machine that has no cache files.
void clear(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) std::filesystem::remove(entry.path());
}

// Makes the pipeline as a new process would find it.
Dataset fresh(const std::filesystem::path& folder, uint32_t seed) {
  clear(folder);
  return Pipelines(folder, seed).make();
}

TEST(RestoreRandom, ElementsAreThoseOfARunWithoutAnInterruption) {
  const testing::TemporaryFolder folder;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    clear(folder.path());
    Pipelines pipelines(folder.path(), seed);
    const Dataset dataset = pipelines.make();
    SCOPED_TRACE(c10::str("seed ", seed, ":", pipelines.description));
    const std::vector<Values> wanted = run(dataset);
    const int64_t epoch = random() % 3;
    const auto size = static_cast<int64_t>(wanted[epoch].size());
    const int64_t at = random() % (size + 2);
    Iterator saved = dataset.iterator({.epoch = epoch});
    skip(saved, at);
    const std::string state = saved.save();
    const Values rest(wanted[epoch].begin() + std::min(at, size), wanted[epoch].end());
    ASSERT_EQ(rest_of(saved), rest) << "after save() at " << at;
    for (const bool same_process : {true, false}) {
      const Dataset again = same_process ? dataset : fresh(folder.path(), seed);
      Iterator restored = again.iterator({.epoch = static_cast<int64_t>(random() % 3)});
      const int64_t moved = random() % (size + 2);
      skip(restored, moved);
      restored.restore(state);
      ASSERT_EQ(rest_of(restored), rest) << "restored at " << at << " of epoch " << epoch << " after " << moved;
      ASSERT_EQ(run(again), wanted) << "passes after the restored one";
    }
    // What a cache file has been given stands for all elements, in a process that finds it.
    ASSERT_EQ(run(Pipelines(folder.path(), seed).make()), wanted) << "with the cache files that are left";
  }
}

TEST(RestoreRandom, DistributedInputsGoOnFromAnywhere) {
  const MirroredStrategy two({.devices = cpu_devices(2)});
  const auto rest = [](DistributedIterator& iterator) {
    std::vector<Values> steps;
    while (const auto batch = iterator.next()) {
      steps.emplace_back();
      for (const Example& share : batch->values()) {
        for (int64_t i = 0; i < share.size(); ++i) steps.back().push_back(share.x[i].item<int64_t>());
      }
    }
    return steps;
  };
  const auto make = [&] { return two.distribute(Dataset::range(12).cache().shuffle(5, {.seed = 3}).batch(4)); };
  const DistributedDataset dataset = make();
  std::vector<std::vector<Values>> wanted;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    DistributedIterator iterator = dataset.iterator({.epoch = epoch});
    wanted.push_back(rest(iterator));
  }
  for (int64_t moved = 0; moved < 4; ++moved) {
    DistributedIterator saved = dataset.iterator({.epoch = 1});
    (void)saved.next();
    const std::string state = saved.save();
    const DistributedDataset other = make();
    DistributedIterator restored = other.iterator({.epoch = 1});
    for (int64_t i = 0; i < moved; ++i) (void)restored.next();
    restored.restore(state);
    EXPECT_EQ(rest(restored), std::vector<Values>(wanted[1].begin() + 1, wanted[1].end())) << moved;
    DistributedIterator next = other.iterator({.epoch = 2});
    EXPECT_EQ(rest(next), wanted[2]) << moved;
  }
}

// A pass that an exception has taken an element from is no complete one.
TEST(RestoreRandom, ACacheIsNotFilledByAPassThatLacksAnElement) {
  const auto failures = std::make_shared<int>(1);
  const Dataset dataset = Dataset::range(4)
                              .map([failures](Example e) {
                                if (e.x.item<int64_t>() == 2 && (*failures)-- > 0) throw std::runtime_error("once");
                                return e;
                              })
                              .cache();
  Iterator first = dataset.iterator();
  skip(first, 2);
  EXPECT_THROW((void)first.next(), std::runtime_error);
  EXPECT_EQ(rest_of(first), (Values{3}));
  Iterator second = dataset.iterator();
  EXPECT_EQ(rest_of(second), (Values{0, 1, 2, 3}));
}

}  // namespace
}  // namespace cohort::restore_random_test
