// TrainingRun: a running fit(), for callbacks that save it and make it go on.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cohort/checkpoint.h"

namespace cohort {

// A running fit(). Its functions are collectives of all workers.
class TrainingRun {
 public:
  virtual ~TrainingRun() = default;

  // Returns everything that is needed to go on from here, on the chief; nothing on other workers. The groups are
  // "model" and "optimizer", with PyTorch's names where it has them, and "callback.<name>" for callbacks that keep
  // tensors; there is one piece of bytes for each worker. The values are "step", "epoch" and "batch" (where it goes
  // on), "trained_parameters" (their number), "stopped" if a callback has ended it, and "callback.<name>.<key>". Call
  // it from on_batch_end, on_epoch_end and on_preemption; it has the states that the callbacks have by then
  // (Callback::turn).
  virtual CheckpointData save() = 0;

  // Does the same for a checkpoint that all workers write together: each returns what it has of the tensors, as shards,
  // and its own bytes. Only BackupAndRestore and others of the library can write it.
  virtual CheckpointData save_shards() = 0;

  // Calls load() on the chief and goes on from what it returns. Returns false if it returns nothing.
  // FailedPrecondition: it is not called from on_train_begin. NotFound, InvalidArgument: it does not fit the model.
  virtual bool resume(const std::function<std::optional<CheckpointData>()>& load) = 0;
  // Does the same with what load() returns on every worker, which is nothing on all of them or on none. The chief's
  // counts, but for its shards.
  virtual bool resume_together(const std::function<std::optional<CheckpointData>()>& load) = 0;

  // Sets a function that is called before every step and every batch of the validation. When it returns true on any
  // worker, all end training at the same step: on_preemption() of the callbacks is called, then fit() throws Preempted.
  // FailedPrecondition: it is not called from on_train_begin.
  virtual void end_when(std::function<bool()> told) = 0;

  // Returns the chief's value on every worker.
  virtual bool as_chief_says(bool mine) const = 0;

  // Runs fn on the chief. What it throws is rethrown there, and as Unavailable on the other workers.
  virtual void on_chief(const std::string& what, const std::function<void()>& fn) const = 0;
};

}  // namespace cohort
