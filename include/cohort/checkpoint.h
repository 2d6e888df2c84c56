// Checkpoints: what a run needs to go on, a folder each, which appears whole or not at all.
//
//   <directory>/checkpoint                   names the latest one and those that are kept for good (JSON)
//   <directory>/ckpt-120/manifest.json       step, time, values; size and CRC32C of every file
//                        model.safetensors   a group of tensors, which Python reads too
//                        input-0.bin         bytes that mean something to their writer only
//
// Everything is written under another name, flushed to the disk, and renamed.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/weights.h"

namespace cohort {

// What is in a checkpoint: groups of tensors, pieces of bytes, and texts.
struct CheckpointData {
  // Names of groups and of bytes: letters, digits, "_", "-" and ".", not first.
  std::map<std::string, NamedTensors> tensors = {};
  // Pieces that mean something to their writer only, such as the position of the input, by name.
  std::map<std::string, std::string> bytes = {};
  std::map<std::string, std::string> values = {};  // short texts by key; they stand in the manifest
};

// A checkpoint that was read.
struct SavedCheckpoint {
  int64_t step = 0;              // the global step at which it was saved
  std::filesystem::path folder;  // where it lies
  CheckpointData data;           // what is in it
};

// Writes one folder; one that is there already is replaced. Makes the folder that it is to stand in. Unavailable: a
// full disk and others.
void save_checkpoint(const std::filesystem::path& folder, int64_t step, const CheckpointData& data);

// A checkpoint folder, with everything in it checked. NotFound: there is none; DataLoss: damaged, named with the file
// and the place; Unimplemented: of a later format.
SavedCheckpoint read_checkpoint(const std::filesystem::path& folder);

struct CheckpointManagerOptions {
  std::string name = "ckpt";  // checkpoints are called <name>-<step>
  // The number of latest checkpoints that are kept; 0: all.
  int64_t max_to_keep = 5;
  // Hours after which one of the checkpoints that max_to_keep would remove is kept for good; 0: none is.
  double keep_every_n_hours = 0.0;
  // Whether save() returns when the data is copied, and a thread writes it.
  bool asynchronous = true;
  // The longest wait for a write under way.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // The longest wait for another process that writes to the directory and may be about to end. If that process is on
  // another machine the wait is two minutes longer, in which a file server notices the loss of a machine.
  std::chrono::milliseconds lock_timeout = std::chrono::seconds(10);
};

// One a directory at a time, used by one thread: while it lives, no other process's manager writes to the directory,
// and the file ".writer" there says whose it is. Who only reads is not concerned.
class CheckpointManager {
 public:
  // Makes the directory and removes what an interrupted write has left there. InvalidArgument: wrong options.
  // FailedPrecondition: another process writes to the directory; the message says which.
  explicit CheckpointManager(std::filesystem::path directory, const CheckpointManagerOptions& options = {});
  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;
  // Waits for a write under way; an error of it is logged. One that takes longer than the timeout is left to its
  // thread.
  ~CheckpointManager();

  // Returns the directory that the manager was made with.
  const std::filesystem::path& directory() const;

  // Copies the data, waits for the write before this one, and returns the folder. A checkpoint of the same step is
  // replaced. What the write before met is thrown here: Unavailable (a full disk and others), NotFound; or that it has
  // not ended: DeadlineExceeded.
  std::filesystem::path save(int64_t step, const CheckpointData& data);
  // Returns when what was saved is on the disk; throws what writing it met.
  void wait();

  // Steps of the checkpoints that there are, ascending.
  std::vector<int64_t> steps();
  // Returns the step of the newest checkpoint, or nothing if there is none.
  std::optional<int64_t> latest();
  // Returns the folder of the checkpoint of a step, whether there is one or not.
  std::filesystem::path folder(int64_t step) const;

  // The newest checkpoint that is whole; a damaged one is skipped with a warning for the one before. Nothing where
  // there is none.
  std::optional<SavedCheckpoint> restore_latest();

  // Says in the directory that no more will come, until the next save(): who follows it comes to an end.
  void finish();
  // Returns whether finish() was called and nothing was saved since.
  bool finished();

  // Removes all of its checkpoints, and the directory when nothing else is in it.
  void clear();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // its thread's too
};

struct CheckpointFollowerOptions {
  std::string name = "ckpt";                                  // the manager's
  std::chrono::milliseconds poll = std::chrono::seconds(1);   // between looks at the directory
  std::chrono::milliseconds timeout = std::chrono::hours(1);  // of every wait for a new one
  // An earlier run that has ended in the directory and is not to be looked at: what finished_run() said before the
  // writer began. Empty: there is none.
  std::string skip_run = {};
};

// A name of the run whose checkpoints are in the directory, when it has finished; empty otherwise.
std::string finished_run(const std::filesystem::path& directory);

// Follows the checkpoints that another process writes; only reads. Used by one thread.
class CheckpointFollower {
 public:
  // The directory need not be there yet.
  explicit CheckpointFollower(std::filesystem::path directory, const CheckpointFollowerOptions& options = {});

  // The newest checkpoint's folder, when it is newer than the one before; waits for it. It may go at any time, when the
  // writer keeps few. Nothing when the writer has finished. DeadlineExceeded: none came.
  std::optional<std::filesystem::path> next();

 private:
  std::filesystem::path directory_;
  CheckpointFollowerOptions options_;
  int64_t last_ = -1;
};

}  // namespace cohort
