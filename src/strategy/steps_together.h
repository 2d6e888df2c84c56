// StepsTogether: steps of a training that begin as one launch, where the strategy's devices record their work. Under
// other strategies it does nothing.
#pragma once

#include <exception>

#include "base/error_text.h"
#include "base/log.h"
#include "strategy/core.h"

namespace cohort {

// From announce() on, steps are held back until as many have come. While it lives the strategy is used by its thread
// alone.
class StepsTogether {
 public:
  StepsTogether(StrategyCore& core, int64_t steps) : core_(core), steps_(steps) {}
  StepsTogether(const StepsTogether&) = delete;
  StepsTogether& operator=(const StepsTogether&) = delete;
  // Begins what is left, where an exception has kept the loop from doing so.
  ~StepsTogether() {
    try {
      begin();
    } catch (const std::exception& error) {
      log().warn("{}", error_text(error));
    } catch (...) {
      log().warn("[strategy] the launch of a loop of steps has failed with an exception that is no std::exception");
    }
  }

  void announce() {
    if (steps_ < 2) return;
    core_.gather_steps(steps_);
    announced_ = true;
  }
  // Begins what is held back. Errors of the launch come out here.
  void begin() {
    if (!announced_) return;
    announced_ = false;
    core_.gather_steps(1);
  }

 private:
  StrategyCore& core_;
  const int64_t steps_;
  bool announced_ = false;
};

}  // namespace cohort
