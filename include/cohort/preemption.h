// Preemption: the machine is taken away, after a warning.
//
//   try {
//     model.fit(train, {.callbacks = {BackupAndRestore({.directory = "backup", .save_before_preemption = true})}});
//   } catch (const cohort::Preempted&) {
//     return cohort::kPreemptedExitCode;  // all workers have saved the same step; started again they go on there
//   }
#pragma once

#include <cstdint>

namespace cohort {

// The exit code by which a program tells those who start it that it was preempted; it is TensorFlow's.
inline constexpr int kPreemptedExitCode = 42;

// Hears SIGTERM in the place of the handler before, which the last watcher's destructor puts back. Several may be there
// at once, on any thread.
class PreemptionWatcher {
 public:
  // Unavailable: the system does not let the signal be handled.
  PreemptionWatcher();
  PreemptionWatcher(const PreemptionWatcher&) = delete;
  PreemptionWatcher& operator=(const PreemptionWatcher&) = delete;
  ~PreemptionWatcher();

  // Returns whether SIGTERM came since this watcher was made.
  bool preempted() const noexcept;

 private:
  int64_t heard_;  // the time at which it was made
};

}  // namespace cohort
