// Verdict: whether a step has updated the parameters. With a loss scale one whose gradients are not finite does not,
// and where they lie on a device that is known only when their norm has come from there, which the host does not wait
// for before it has to know: at the next loss.
#pragma once

#include <cmath>
#include <memory>
#include <utility>

#include "device/backend.h"

namespace cohort {

// One thread at a time; copies are of the same step.
class Verdict {
 public:
  Verdict(bool updated) : updated_(updated) {}  // NOLINT(google-explicit-constructor): what is known is a verdict
  explicit Verdict(std::shared_ptr<const ArrivingNumber> norm) : norm_(std::move(norm)) {}

  // Returns whether it is known by now that the step was left out.
  bool is_left_out() const { return norm_ == nullptr && !updated_; }
  // Returns whether there was an update. Waits for the norm where it is on its way.
  bool updated() const { return norm_ == nullptr ? updated_ : std::isfinite(norm_->value()); }

 private:
  bool updated_ = false;
  std::shared_ptr<const ArrivingNumber> norm_;
};

}  // namespace cohort
