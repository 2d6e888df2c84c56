// StepInParts: makes the steps of an optimizer whose functions get a part of a replica's share at a time
// (strategy/replica_scope.h). The wing whose strategies do so adds a maker (base/extension.h).
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cohort/replica.h"
#include "step/step.h"

namespace cohort {

class ReplicaScope;

// One for each step.
class StepInParts {
 public:
  StepInParts() = default;
  StepInParts(const StepInParts&) = delete;
  StepInParts& operator=(const StepInParts&) = delete;
  virtual ~StepInParts() = default;

  // Takes notice of the parameters that this process has, before their exchange is made. A collective of all workers.
  virtual void laid_out(Step& step) = 0;
  // Hands the loss of a part of the share to the scope. Called by the scope's threads.
  virtual void minimize(Step& step, ReplicaScope& scope, const Replica& replica, const torch::Tensor& loss) = 0;

 protected:
  // Accessors to the parts of a step.
  static const MirroredModule& module(const Step& step) { return step.module_; }
  static FlatParameters& flat(const Step& step) { return *step.flat_; }
  static torch::Tensor scaled(Step& step, const Replica& replica, const torch::Tensor& loss) {
    return step.scaled(replica, loss);
  }
  // Meets the replicas that have to step this optimizer, too.
  static void join(const Step& step, const Replica& replica) { step.join(replica); }
  static void update(Step& step, Replica& replica, Step::Given given) { step.update(replica, std::move(given)); }
  // Calls a function that makes parameters absent, and goes on with those that are left, which had these numbers.
  static void leave(Step& step, const std::function<void()>& make_absent, const std::vector<std::size_t>& left) {
    step.leave(make_absent, left);
  }
};

struct MakeStepInParts {
  std::unique_ptr<StepInParts> (*make)();
};

}  // namespace cohort
