// Dataset: a pipeline that yields Examples (tf.data). A cheap value; nothing runs before it is iterated.
//
//   auto train = cohort::Dataset::from_tensor_slices(images, labels).shuffle(10'000).batch(128).prefetch();
//   for (const cohort::Example& batch : train) ...
#pragma once

#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/example.h"

namespace cohort {

class Dataset;
class DatasetNode;
class ElementIterator;
class PassCounters;

// The cardinality of a dataset without an end.
constexpr int64_t kInfiniteCardinality = -1;
// The cardinality of a dataset whose size is found out only by reading it.
constexpr int64_t kUnknownCardinality = -2;
// Leaves the choice to the library.
constexpr int64_t kAuto = -1;

struct BatchOptions {
  bool drop_remainder = false;  // leaves out a short last batch
};
struct ShuffleOptions {
  std::optional<uint64_t> seed = std::nullopt;  // unset: LibTorch's seed (torch::manual_seed)
  bool reshuffle_each_iteration = true;         // each pass has another order, which depends on (seed, epoch) alone
};
struct MapOptions {
  int num_parallel_calls = 1;  // number of threads; the order of the elements is kept
  // The longest wait for one element.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};
struct RandomMapOptions {
  std::optional<uint64_t> seed = std::nullopt;  // unset: LibTorch's seed (torch::manual_seed)
  MapOptions threads = {};                      // the options of map()
};
struct InterleaveOptions {
  int64_t cycle_length = 1;  // number of datasets that are open at a time
  int64_t block_length = 1;  // number of elements from one dataset before the next one's turn
};
struct PrefetchOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // the longest wait for one element
};
struct GeneratorOptions {
  bool batched = false;                       // the elements are batches
  int64_t cardinality = kUnknownCardinality;  // number of elements if it is known
};
struct IteratorOptions {
  // The number of the pass over the data, from 0: the orders of shuffle() and the numbers of random_map() depend on it.
  // kAuto: the next one. A dataset that is derived from another one goes on with its count, except by shuffle() and
  // random_map(), which count their own passes; those under a strategy are counted apart. fit() gives its epochs here.
  int64_t epoch = kAuto;
  // Selects every file_shards-th file, beginning with number file_shard, of the files that interleave() opens, of
  // TFRecord files and of an image folder.
  int64_t file_shards = 1;
  int64_t file_shard = 0;  // see file_shards
};

// A position in a dataset. It is move-only and used by one thread at a time. Destroying it ends its threads; one
// that stays in a function of the program's is left behind after its timeout, with a warning.
class Iterator {
 public:
  explicit Iterator(std::unique_ptr<ElementIterator> elements);
  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;
  ~Iterator();

  // Returns the next element, or nullopt at the end and from then on. Throws what a function of the pipeline threw.
  std::optional<Example> next();

  // Returns everything that is needed to go on from here in another process, as bytes: shuffle buffers and random
  // states are included. A generator is restored by calling it again and skipping. Passes that begin after a restore
  // are counted on from the restored one.
  std::string save() const;
  // Continues where save() was called on an iterator of an equal pipeline. DataLoss: damaged bytes; InvalidArgument:
  // the bytes of another pipeline.
  void restore(const std::string& state);

 private:
  std::unique_ptr<ElementIterator> elements_;
};

// The iterator of range-based for loops over the elements of a pass, which is an Iterator or a DistributedIterator.
template <typename Pass, typename Element>
class PassCursor {
 public:
  // The type of the loop's variable.
  using value_type = Element;
  explicit PassCursor(std::shared_ptr<Pass> pass) : pass_(std::move(pass)), current_(pass_->next()) {}
  const Element& operator*() const { return *current_; }
  const Element* operator->() const { return &*current_; }
  PassCursor& operator++() {
    current_ = pass_->next();
    return *this;
  }
  bool operator==(std::nullptr_t) const { return !current_; }

 private:
  std::shared_ptr<Pass> pass_;
  std::optional<Element> current_;
};

// A pipeline: a source and transformations. Copies are the same pipeline and share its count of passes. Thread-safe.
class Dataset {
 public:
  // Changes an element. Called by several threads at once with num_parallel_calls above 1.
  using Map = std::function<Example(Example)>;
  // Changes an element with random numbers of its own.
  using RandomMap = std::function<Example(Example, at::Generator)>;
  // Says whether an element stays.
  using Predicate = std::function<bool(const Example&)>;
  // Yields the next element, or nothing at the end of the pass.
  using Generator = std::function<std::optional<Example>()>;

  explicit Dataset(std::shared_ptr<const DatasetNode> node);

  // Returns a dataset of one element.
  static Dataset from_tensors(Example example);
  // Returns a dataset with one element for each row. InvalidArgument: columns have different numbers of rows.
  static Dataset from_tensor_slices(Example columns);
  static Dataset from_tensor_slices(const torch::Tensor& x, const torch::Tensor& y = {},
                                    const torch::Tensor& weight = {});
  // Returns a dataset of generated elements. make() is called for every iteration and returns a function that yields
  // the elements, then nullopt.
  static Dataset from_generator(std::function<Generator()> make, const GeneratorOptions& options = {});
  // Returns a dataset of int64 scalars x: start, start + step, ... before stop.
  static Dataset range(int64_t stop);
  static Dataset range(int64_t start, int64_t stop, int64_t step = 1);

  // Applies fn to every element. An exception of fn arrives at Iterator::next().
  Dataset map(Map fn, const MapOptions& options = {}) const;
  // The same with a generator of the element's own, which depends on the seed (unset: LibTorch's), the epoch and the
  // place in the pipeline only: the same random numbers however many threads compute, and in a run that goes on.
  Dataset random_map(RandomMap fn, const RandomMapOptions& options = {}) const;
  // Stacks `size` elements; every column gets a batch dimension. Elements whose columns have different names, shapes or
  // dtypes: InvalidArgument.
  Dataset batch(int64_t size, const BatchOptions& options = {}) const;
  // Makes an element of each row of each element: the opposite of batch().
  Dataset unbatch() const;
  // Draws the next element uniformly from a buffer of `size` elements.
  Dataset shuffle(int64_t size, const ShuffleOptions& options = {}) const;
  // Repeats the elements `count` times, each time with a pass of its own; without a count for ever.
  Dataset repeat(int64_t count = kInfiniteCardinality) const;
  // Keeps the first `count` elements.
  Dataset take(int64_t count) const;
  // Drops the first `count` elements.
  Dataset skip(int64_t count) const;
  // Keeps the elements for which predicate returns true.
  Dataset filter(Predicate predicate) const;
  // Joins the elements of two datasets side by side: the inputs of the first stay inputs (x, or the named ones), those
  // of the second become targets (y, or the named ones). Other named columns of both stay under their names, which have
  // to differ; all others follow in `more`. Ends with the shorter one.
  Dataset zip(const Dataset& other) const;
  // Yields the elements of this dataset, then those of the other one.
  Dataset concatenate(const Dataset& other) const;
  // Makes a dataset of each element with fn, and takes their elements in turns.
  Dataset interleave(std::function<Dataset(Example)> fn, const InterleaveOptions& options = {}) const;
  // Keeps the elements of the first complete pass, in memory or in a file, and yields them in later ones. A worker that
  // reads only its part of the files keeps that, in a file of its own name ("file-0-of-2").
  Dataset cache() const;
  Dataset cache(const std::filesystem::path& file) const;
  // Lets a thread work up to `count` elements ahead.
  Dataset prefetch(int64_t count = kAuto, const PrefetchOptions& options = {}) const;
  // Keeps every count-th element, beginning with the index-th.
  Dataset shard(int64_t count, int64_t index) const;

  // Returns the number of elements, kInfiniteCardinality or kUnknownCardinality.
  int64_t cardinality() const;
  // Returns the number of elements (Python's len()). FailedPrecondition: there is no end, or the number is not known.
  int64_t size() const;
  // Returns whether the elements are batches.
  bool is_batched() const;
  // Returns the number of examples in a batch, or nothing if the elements are no batches or of unknown size.
  std::optional<int64_t> batch_size() const;

  // Begins a pass over the data, the next one unless the options say which. Thread-safe.
  Iterator iterator(const IteratorOptions& options = {}) const;

  // The iterator of range-based for loops. Each loop is the next pass, so the data is shuffled and augmented anew.
  using Cursor = PassCursor<Iterator, Example>;
  Cursor begin() const;
  std::nullptr_t end() const { return nullptr; }

  // Returns the last transformation of the pipeline; the library uses this.
  const std::shared_ptr<const DatasetNode>& node() const { return node_; }
  // Returns the count of passes; the library uses this.
  const std::shared_ptr<PassCounters>& passes() const { return passes_; }

  // Returns a dataset of a node that was made from this one's, whose passes are this one's; the library uses this.
  Dataset derived(std::shared_ptr<const DatasetNode> node) const;

 private:
  std::shared_ptr<const DatasetNode> node_;
  std::shared_ptr<PassCounters> passes_;  // shared by the copies of a dataset
};

}  // namespace cohort
