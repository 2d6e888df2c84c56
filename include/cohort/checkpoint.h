// Checkpoints: the state from which a run goes on. Each is a folder that appears whole or not at all.
//
//   <directory>/checkpoint                   names the latest one and those that are kept for good (JSON)
//   <directory>/ckpt-120/manifest.json       step, time, values; size and CRC32C of every file
//                        model.safetensors   a group of tensors, which Python reads too
//                        input-0.bin         bytes that mean something to their writer only
//
// Where the workers of a training share its tensors, each can write what it has of them
// (BackupAndRestoreOptions::sharded and others): model.shard-0-of-4.safetensors. The manifest says then where the
// pieces of each tensor are.
//
// Everything is written under another name, flushed to the disk, and renamed.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/weights.h"

namespace cohort {

struct CheckpointShards;

// The contents of a checkpoint: groups of tensors, pieces of bytes, and texts.
struct CheckpointData {
  // Names of groups and of bytes: letters, digits, "_", "-" and ".", not first.
  std::map<std::string, NamedTensors> tensors = {};
  // Pieces that mean something to their writer only, such as the position of the input, by name.
  std::map<std::string, std::string> bytes = {};
  std::map<std::string, std::string> values = {};  // short texts by key; they stand in the manifest
  // Tensors of which this worker saves its part, or that all workers read by parts; the library's own. Null: none.
  std::shared_ptr<CheckpointShards> shards = nullptr;
};

// A checkpoint that was read.
struct SavedCheckpoint {
  int64_t step = 0;              // the global step at which it was saved
  std::filesystem::path folder;  // the folder itself
  CheckpointData data;           // the contents
  // What the bits of a training depend on beside its program and data, as it was at the process that saved: "cpu" (the
  // instruction set), "blas", "threads", "libtorch" and "cohort" (the versions). Empty in checkpoints of earlier
  // versions of Cohort.
  std::map<std::string, std::string> environment = {};
};

// Writes one folder, and replaces one of the same name. Makes the folder around it. Unavailable: the disk is full, and
// other failures of the file system. FailedPrecondition: the data is one worker's shards.
void save_checkpoint(const std::filesystem::path& folder, int64_t step, const CheckpointData& data);

// Reads a checkpoint folder and checks everything in it; what several workers have written in shards is put together.
// NotFound: there is none. DataLoss: it is damaged; the message
// has the file and the place. Unimplemented: its format is a later one.
SavedCheckpoint read_checkpoint(const std::filesystem::path& folder);

struct CheckpointManagerOptions {
  std::string name = "ckpt";  // checkpoints are called <name>-<step>
  // The number of latest checkpoints that are kept; 0: all.
  int64_t max_to_keep = 5;
  // Hours after which one of the checkpoints that max_to_keep would remove is kept for good; 0: none is.
  double keep_every_n_hours = 0.0;
  // With true, save() returns as soon as the data is copied, and a thread writes it.
  bool asynchronous = true;
  // The longest wait for a write under way.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // The longest wait for another process that writes to the directory and may be about to end. If that process is on
  // another machine the wait is two minutes longer, in which a file server notices the loss of a machine.
  std::chrono::milliseconds lock_timeout = std::chrono::seconds(10);
};

// The writer of a directory of checkpoints. While it lives no other manager writes to the directory, and the file
// ".writer" there names its process; readers are not affected. Used by one thread.
class CheckpointManager {
 public:
  // Makes the directory and removes what an interrupted write has left there. InvalidArgument: wrong options.
  // FailedPrecondition: another process writes to the directory; the message says which.
  explicit CheckpointManager(std::filesystem::path directory, const CheckpointManagerOptions& options = {});
  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;
  // Waits for a write under way, and logs its error. A write that takes longer than the timeout is left to its thread.
  ~CheckpointManager();

  // Returns the directory that the manager was made with.
  const std::filesystem::path& directory() const;

  // Copies the data, waits for the write before this one, and returns the folder. A checkpoint of the same step is
  // replaced. An error of the write before is thrown here: Unavailable (a full disk and others), NotFound, or
  // DeadlineExceeded if it has not ended. FailedPrecondition: the data is one worker's shards.
  std::filesystem::path save(int64_t step, const CheckpointData& data);
  // Waits until everything that was saved is on the disk, and throws the error of writing it.
  void wait();

  // Returns the steps of the checkpoints, in ascending order.
  std::vector<int64_t> steps();
  // Returns the step of the newest checkpoint, or nothing if there is none.
  std::optional<int64_t> latest();
  // Returns the folder of the checkpoint of a step, whether there is one or not.
  std::filesystem::path folder(int64_t step) const;

  // Returns the newest checkpoint that is whole, or nothing if there is none. Damaged ones are skipped with a warning.
  std::optional<SavedCheckpoint> restore_latest();

  // Marks the series as complete until the next save(), so that followers of the directory end.
  void finish();
  // Returns whether finish() was called and nothing was saved since.
  bool finished();

  // Removes all of its checkpoints, and the directory when nothing else is in it.
  void clear();

 private:
  friend class WorkerCheckpoints;
  class Impl;
  // The writing of a checkpoint by several workers, on the chief; see train/loop/worker_checkpoints.h.
  std::filesystem::path drafts();
  std::filesystem::path begin_shards(int64_t step);
  void save_shards(int64_t step, const CheckpointData& data, int workers, std::function<bool()> lost);
  void give_up_shards();
  void note_restored(const SavedCheckpoint& checkpoint);

  std::shared_ptr<Impl> impl_;  // shared with its thread
};

struct CheckpointFollowerOptions {
  std::string name = "ckpt";                                  // the manager's name for its checkpoints
  std::chrono::milliseconds poll = std::chrono::seconds(1);   // the time between two looks at the directory
  std::chrono::milliseconds timeout = std::chrono::hours(1);  // the longest wait for a new checkpoint
  // An earlier run in the directory, which is ignored: the result of finished_run() before the writer began. If it is
  // empty there is none.
  std::string skip_run = {};
};

// Returns a name of the run whose checkpoints are in the directory if it has finished, otherwise an empty text.
std::string finished_run(const std::filesystem::path& directory);

// Follows the checkpoints that another process writes, and only reads. Used by one thread.
class CheckpointFollower {
 public:
  // Makes a follower of a directory, which need not exist yet.
  explicit CheckpointFollower(std::filesystem::path directory, const CheckpointFollowerOptions& options = {});

  // Waits for a checkpoint that is newer than the one before, and returns its folder. The folder may be deleted at any
  // time if the writer keeps few. Returns nothing if the writer has finished. DeadlineExceeded: none came.
  std::optional<std::filesystem::path> next();

 private:
  std::filesystem::path directory_;
  CheckpointFollowerOptions options_;
  int64_t last_ = -1;
};

}  // namespace cohort
