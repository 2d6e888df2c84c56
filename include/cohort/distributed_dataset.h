// DistributedDataset: a dataset whose global batches are split among the replicas of a strategy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cohort/dataset.h"
#include "cohort/strategy.h"

namespace cohort {

class DistributedSource;

// The division of a dataset among the workers of a strategy over several processes (tf.data's AutoShardPolicy). Every
// worker makes the same dataset.
enum class AutoShard {
  kAuto,  // kFile if there are enough files, else kData
  kFile,  // a worker reads its own part of the files: what interleave() opens, TFRecord files, an image folder's images
  kData,  // a worker reads all and keeps its part: needs the same order on every worker (the same seed of a shuffle)
  kOff,   // a worker trains on all
};

// The division and preparation of a strategy's input.
struct InputOptions {
  // The number of steps that a thread prepares ahead: it batches, splits and copies them to the devices, by way of as
  // many page-locked buffers for each device. 0: none, and one buffer.
  int64_t prefetch_steps = 2;
  // The longest wait for one step's input.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // In a single process nothing is divided, but it decides how batches are cut: see DistributedDataset.
  AutoShard auto_shard = AutoShard::kAuto;
};

// One step's input: a share for every local replica. A replica without data gets a share of size 0.
class GlobalBatch : public PerReplica<Example> {
 public:
  GlobalBatch() = default;
  // `some_empty`: a share of another worker is empty.
  GlobalBatch(std::vector<Example> shares, int64_t global_size, bool some_empty = false)
      : PerReplica(std::move(shares)), global_size_(global_size), some_empty_(some_empty) {}

  // Returns the number of examples in the step over all replicas.
  int64_t global_size() const { return global_size_; }
  // Returns whether the share of some replica, of any worker, is empty.
  bool some_empty() const { return some_empty_; }

 private:
  int64_t global_size_ = 0;
  bool some_empty_ = false;
};

// A position in a distributed dataset. It is move-only and used by one thread at a time.
class DistributedIterator {
 public:
  explicit DistributedIterator(std::unique_ptr<DistributedSource> source);
  DistributedIterator(DistributedIterator&&) noexcept;
  DistributedIterator& operator=(DistributedIterator&&) noexcept;
  ~DistributedIterator();

  // Returns the input of the next step, or nullopt at the end. The end is that of the worker with the most data; until
  // then the others get shares of size 0. A collective of all workers. Called inside a replica, or by workers that are
  // in different passes: FailedPrecondition.
  std::optional<GlobalBatch> next();

  // Tells all workers bits of this one, by which training loops decide together. They travel with the agreement on a
  // step, which is made one step ahead, and arrive in raised().
  void raise(int64_t flags);
  // Returns the bits that any worker raised, as of the last next().
  int64_t raised() const;

  // Returns the position as Iterator::save() does, with the steps that are prepared ahead.
  std::string save();
  // Goes on where save() was called, on every worker with its own bytes. DataLoss, InvalidArgument: as
  // Iterator::restore().
  void restore(const std::string& state);

 private:
  std::unique_ptr<DistributedSource> source_;
};

// A cheap value. The sizes of the shares are TensorFlow's. With AutoShard::kData, which kAuto means for data in memory,
// and where the batch size is not known, each batch of b examples is cut by itself, into pieces of ceil(b / R) for R
// replicas: a short last batch of 30 gives 2 replicas 15 each. With kFile and kOff a global batch of G gives the first
// G mod R replicas one example more, and the sizes go on over the borders of batches: 30 after batches of 50 are 25
// and 5.
class DistributedDataset {
 public:
  // Makes a pass; for the library.
  using Make = std::function<std::unique_ptr<DistributedSource>(const IteratorOptions&)>;
  // The library uses this: Strategy::distribute() makes distributed datasets.
  DistributedDataset(Make make, int64_t cardinality) : make_(std::move(make)), cardinality_(cardinality) {}

  // Begins a pass over the data, the next one unless the options say which. All workers begin the same passes.
  DistributedIterator iterator(const IteratorOptions& options = {}) const;

  // Returns the number of steps in one pass, kInfiniteCardinality or kUnknownCardinality. It is exact for every policy
  // and number of workers: those steps are counted that next() gives. A map() of batches is taken to leave their sizes.
  // Not known are inputs that a function makes for several workers, each of which knows only its own; what filter(),
  // interleave(), unbatch() and records without a count yield; and, where sizes go on over the borders of batches,
  // batches of sizes that are not known.
  int64_t cardinality() const { return cardinality_; }
  // Returns the number of steps in one pass. FailedPrecondition: there is no end, or the number is not known.
  int64_t size() const;

  // The iterator of range-based for loops. Each loop is the next pass.
  using Cursor = PassCursor<DistributedIterator, GlobalBatch>;
  Cursor begin() const;
  std::nullptr_t end() const { return nullptr; }

 private:
  Make make_;
  int64_t cardinality_;
};

}  // namespace cohort
