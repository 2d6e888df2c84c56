// Checkpoint: saves a training loop of one's own and lets it go on, under any strategy (tf.train.Checkpoint with its
// manager, and tf.distribute.experimental.PreemptionCheckpointHandler). BackupAndRestore does the same for fit().
//
//   cohort::Checkpoint checkpoint(strategy, "run", {.modules = {{"model", net}}, .optimizers = {{"optimizer", adam}}});
//   cohort::DistributedIterator batches = data.iterator();
//   int64_t step = checkpoint.restore(&batches).value_or(cohort::Progress{}).step;
//   while (const auto batch = batches.next()) {
//     strategy.run([&](cohort::Replica& replica, const cohort::Example& share) { ... }, *batch);
//     ++step;
//     const bool leave = checkpoint.preempted(batches);
//     if (leave || step % 100 == 0) checkpoint.save({.step = step}, &batches);
//     if (leave) return cohort::kPreemptedExitCode;
//   }
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cohort/checkpoint.h"
#include "cohort/distributed_dataset.h"
#include "cohort/mirrored.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "cohort/variable.h"

namespace cohort {

// The parts that are saved, under names of the program: letters, digits, "_", "-" and ".", which may not come first; no
// name twice. The random states of LibTorch on the CPU and of every replica are saved with them.
struct CheckpointParts {
  std::map<std::string, MirroredModule> modules = {};  // the modules, with their buffers
  // The optimizers, with their slots, steps, rates that were set, and gradients that gradient_accumulation_steps holds.
  std::map<std::string, MirroredOptimizer> optimizers = {};
  std::map<std::string, Variable> variables = {};  // the variables, with the components of the replicas
};

// The progress of a training.
struct Progress {
  int64_t step = 0;  // the number of the checkpoint
  // Anything else that the program needs, such as the number of the pass over the data.
  std::map<std::string, std::string> values = {};
};

struct CheckpointOptions {
  // With true, each worker writes the tensors that it has, and reads what it needs: no worker gathers parameters or
  // slots that the replicas share or that are cut. The directory has to be on a file system that all workers reach.
  bool sharded = false;
  CheckpointManagerOptions manager = {};  // the keeping and writing of the checkpoints
  // Returns whether the machine will be taken away; called by preempted(). If it is empty, SIGTERM is the sign, which
  // no longer ends the program once preempted() was called.
  std::function<bool()> told = {};
};

// The checkpoints of a training loop. It is used by one thread, across replicas. All workers make one with the same
// parts and make the same calls; the chief writes and reads, so no common file system is needed, unless it is sharded.
// A run that was
// interrupted and goes on from a checkpoint ends with the bits of a run that was not interrupted, if the iterator was
// saved, too, or a pass over the data begins there.
class Checkpoint {
 public:
  // Makes the directory. InvalidArgument: a part is empty, of another strategy, or its name is wrong.
  // FailedPrecondition: another process writes there; or variables are kept by parameter servers, which their
  // coordinator saves; or a worker does not see the directory of sharded checkpoints.
  Checkpoint(const Strategy& strategy, std::filesystem::path directory, CheckpointParts parts,
             CheckpointOptions options = {});
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;
  // Waits for a write under way; an error of it is logged.
  ~Checkpoint();

  // Restores the newest checkpoint that is whole and returns its progress, or nothing if there is none. `input`, if
  // given, goes to its position; it stays where it is, with a warning, if it was not saved or if there are more or
  // fewer workers or replicas now. NotFound, InvalidArgument: the checkpoint does not fit the parts.
  std::optional<Progress> restore(DistributedIterator* input = nullptr);

  // Saves everything between two steps. Returns when it is copied; an error of the write before is thrown here.
  // FailedPrecondition: it is called inside a replica.
  void save(const Progress& progress, DistributedIterator* input = nullptr);

  // Returns when everything that was saved is on the disk. An error of writing it is thrown here.
  void wait();

  // Returns whether the machine of any worker will be taken away. Call it once after every step, with the iterator of
  // the batches. All workers learn it after the same step, one or two steps after the sign: then save, and exit with
  // kPreemptedExitCode. It uses the highest bit but one of DistributedIterator::raise.
  bool preempted(DistributedIterator& input);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
