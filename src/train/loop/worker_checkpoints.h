// WorkerCheckpoints: the checkpoints of a training that several workers make together. Either the chief has and writes
// everything, or each worker writes its shards to a folder that all of them reach, and reads what it needs.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/shards.h"
#include "cohort/checkpoint.h"
#include "strategy/core.h"

namespace cohort {

// Runs fn on every worker, and returns when it has ended on all of them. An exception of it is rethrown where it came;
// the others get Unavailable with its message and the worker's name. A collective.
void on_every_worker(const StrategyCore& core, const std::string& what, const std::function<void()>& fn);

class WorkerCheckpoints {
 public:
  // FailedPrecondition: with `sharded` a worker does not see the directory that the chief has made; and what
  // CheckpointManager throws. Every function is a collective of all workers.
  WorkerCheckpoints(const StrategyCore& core, std::filesystem::path directory, const CheckpointManagerOptions& options,
                    bool sharded);
  WorkerCheckpoints(const WorkerCheckpoints&) = delete;
  WorkerCheckpoints& operator=(const WorkerCheckpoints&) = delete;
  // Waits for a write under way, and logs its error. What others have to write is not waited for if one of them is
  // lost. No collective.
  ~WorkerCheckpoints();

  bool sharded() const { return sharded_; }
  const std::filesystem::path& directory() const { return directory_; }

  // Returns when the data is copied. With `sharded` the data has shards, and on each worker the bytes of its own;
  // tensors and values are the chief's. An error of the write before is thrown here.
  void save(int64_t step, const CheckpointData& data);
  // Returns when everything that was saved is on the disk. An error of writing it is thrown here.
  void wait();
  // As in CheckpointManager.
  void finish();
  void clear();

  // Returns the newest checkpoint that is whole: all of it on the chief, and nothing but the folder on the others. With
  // `sharded` the groups in `by_parts`, and the bytes, are left to CheckpointData::shards, which all workers have.
  std::optional<SavedCheckpoint> restore_latest(const std::set<std::string>& by_parts);

 private:
  void require_common_folder(const CheckpointManagerOptions& options);
  std::optional<SavedCheckpoint> restore_shards(const std::set<std::string>& by_parts);
  std::string open_on_all(const std::filesystem::path& folder, std::shared_ptr<CheckpointReader>& reader) const;
  void drop_write();
  std::shared_ptr<const StrategyCore> core() const;

  std::weak_ptr<const StrategyCore> strategy_;  // which may end before a callback does that has failed
  std::filesystem::path directory_;
  bool sharded_;
  bool asynchronous_;
  std::chrono::milliseconds timeout_;
  std::optional<CheckpointManager> manager_;  // there on the chief only
  std::future<void> own_;                     // the write of this worker's shards
  std::string own_what_;
};

}  // namespace cohort
