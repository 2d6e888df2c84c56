// TrainingRun: a running fit() as callbacks see it that save it and make it go on.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cohort/checkpoint.h"

namespace cohort {

// Its calls are collectives of all workers.
class TrainingRun {
 public:
  virtual ~TrainingRun() = default;

  // Everything that is needed to go on from here, on the chief; nothing on other workers. The groups are "model" and
  // "optimizer", with PyTorch's names where it has them, and "callback.<name>" for callbacks that keep tensors; one
  // piece of bytes a worker; values: "step", "epoch" and "batch", where it goes on, "stopped" where a callback has
  // ended it, "callback.<name>.<key>". From on_batch_end, on_epoch_end and on_preemption; it has what the callbacks
  // know by then (Callback::turn).
  virtual CheckpointData save() = 0;

  // Calls load() on the chief and goes on from what it gives; false when it gives nothing. From on_train_begin only
  // (FailedPrecondition). NotFound, InvalidArgument: it does not fit the model.
  virtual bool resume(const std::function<std::optional<CheckpointData>()>& load) = 0;

  // When told() is true on any worker (it is called before every step and every batch of the validation), all end
  // training at the same step: the callbacks' on_preemption() is called, then fit() throws Preempted. From
  // on_train_begin only (FailedPrecondition).
  virtual void end_when(std::function<bool()> told) = 0;

  // What the chief says, on every worker.
  virtual bool as_chief_says(bool mine) const = 0;

  // Runs fn on the chief; what it throws comes out there, and as Unavailable on the other workers.
  virtual void on_chief(const std::string& what, const std::function<void()>& fn) const = 0;
};

}  // namespace cohort
