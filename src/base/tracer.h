// Tracer: notes the work of a thread, so that it can run again without the thread. A graph of a device and a recorded
// program are such runs. Collectives, metrics and kernels ask it what the host may do meanwhile.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "cohort/error.h"

namespace cohort {

class StepEngine;  // step/step_engine.h

// Something was met that has no place in work that is done again.
class NotTraceable : public FailedPrecondition {
 public:
  using FailedPrecondition::FailedPrecondition;
};

// Work of the host within a run.
struct HostStage {
  std::function<void()> act;
  // The object that the work needs. The run is not repeated after its destruction. Unset: there is none.
  std::optional<std::weak_ptr<const void>> owner = std::nullopt;
};

// One thread's.
class Tracer {
 public:
  Tracer() = default;
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;
  virtual ~Tracer() = default;

  // Returns the calling thread's. Null: the thread's work is only done, as in what on_host() does.
  static Tracer* current();

  // Returns the device whose work is noted.
  virtual torch::Device traced_device() const = 0;
  // Throws NotTraceable if `what`, which the host does with other replicas or processes, has no place.
  virtual void refuse(std::string_view what) const = 0;
  // Has the host do something at this place: now, and in each run if the tracer can.
  virtual void on_host(HostStage stage) = 0;
  // Takes notice of a kernel of this library's that uses the memory of these tensors.
  virtual void note_kernel(std::span<const torch::Tensor> tensors) = 0;
  // Returns the engine that makes the steps of optimizers; null if no steps are allowed.
  virtual const StepEngine* steps() const = 0;

 protected:
  // Makes a tracer, or none, the calling thread's, and returns the one before.
  static Tracer* make_current(Tracer* tracer);
};

// While it lives, the calling thread does itself what other replicas may have a run of: it meets them only where runs
// do, too.
class [[nodiscard]] BesideRuns {
 public:
  BesideRuns() : before_(std::exchange(is_here, true)) {}
  BesideRuns(const BesideRuns&) = delete;
  BesideRuns& operator=(const BesideRuns&) = delete;
  ~BesideRuns() { is_here = before_; }

  // Returns whether the calling thread has one.
  static bool here() { return is_here; }

 private:
  inline static thread_local bool is_here = false;
  bool before_;
};

// Has the calling thread's tracer refuse `what`; without one does nothing.
void refuse_in_trace(std::string_view what);
// Does something now, and in each run of what is noted.
void outside_of_trace(HostStage stage);

}  // namespace cohort
