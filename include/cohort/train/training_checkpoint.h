// Checkpoint: what a training loop of one's own saves, and goes on from, under any strategy (tf.train.Checkpoint with
// its manager, and tf.distribute.experimental.PreemptionCheckpointHandler). BackupAndRestore does the same for fit().
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

// What is saved, by names of the program's own: letters, digits, "_", "-" and ".", not first; no name twice. Random
// states, of LibTorch on the CPU and of every replica, are saved with it.
struct CheckpointParts {
  std::map<std::string, MirroredModule> modules = {};  // with their buffers
  // With their slots, steps, rates that were set, and gradients that accumulate_steps holds.
  std::map<std::string, MirroredOptimizer> optimizers = {};
  std::map<std::string, Variable> variables = {};  // with the replicas' own components
};

// How far a training has come.
struct Progress {
  int64_t step = 0;  // the number of the checkpoint
  // Whatever the program needs besides, such as the number of the pass over the data.
  std::map<std::string, std::string> values = {};
};

struct CheckpointOptions {
  CheckpointManagerOptions manager = {};  // how many are kept, and how they are written
  // Tells that the machine will be taken away; asked by preempted(). Empty: SIGTERM, which no longer ends the program
  // once preempted() was called.
  std::function<bool()> told = {};
};

// Used by one thread, across replicas. All workers make one, with the same parts, and the same calls; the chief writes
// and reads, so that no common file system is needed. A run that was interrupted at any moment and goes on from a
// checkpoint ends with the bits of one that was not, where a pass over the data begins or its iterator was saved too.
class Checkpoint {
 public:
  // Makes the directory. InvalidArgument: a part is empty, of another strategy, or its name is wrong.
  // FailedPrecondition: another process writes there; or variables are kept by parameter servers, which their
  // coordinator saves.
  Checkpoint(const Strategy& strategy, std::filesystem::path directory, CheckpointParts parts,
             CheckpointOptions options = {});
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;
  // Waits for a write under way; an error of it is logged.
  ~Checkpoint();

  // Goes on from the newest checkpoint that is whole, and returns how far it had come; nothing where there is none.
  // `input`, if given, goes where it was, unless it was not saved, or there are more or fewer workers or replicas now:
  // then it stays where it is, with a warning. NotFound, InvalidArgument: it does not fit the parts.
  std::optional<Progress> restore(DistributedIterator* input = nullptr);

  // Saves everything between two steps. Returns when it is copied; what the write before met is thrown here.
  // FailedPrecondition: inside a replica.
  void save(const Progress& progress, DistributedIterator* input = nullptr);

  // Returns when what was saved is on the disk, and throws what writing it met.
  void wait();

  // Whether any worker's machine will be taken away; asked once after every step, with the iterator of its batches. All
  // workers hear of it after the same step, one or two after the sign: then save, and exit with kPreemptedExitCode. It
  // takes the highest bit but one of DistributedIterator::raise.
  bool preempted(DistributedIterator& input);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
