// Verdict: whether a step has updated the parameters. With a loss scale one whose gradients are not finite does not,
// and where they lie on a device that is known only when their norm has come from there, which the host does not wait
// for before it has to know: at the next loss.
#pragma once

#include <torch/types.h>

#include <cmath>
#include <memory>
#include <utility>

#include "device/backend.h"

namespace cohort {

// One thread at a time; copies are of the same step.
class Verdict {
 public:
  Verdict(bool updated) : updated_(updated) {}  // NOLINT(google-explicit-constructor): what is known is a verdict
  // The norm of the sums is on its way; `there` says on their device whether it is finite.
  Verdict(std::shared_ptr<const ArrivingNumber> norm, torch::Tensor there)
      : norm_(std::move(norm)), there_(std::move(there)) {}
  // A step that is captured as a part of a graph, of which each run makes the two tensors anew.
  static Verdict of_runs(torch::Tensor norm, torch::Tensor there) {
    Verdict verdict(nullptr, std::move(there));
    verdict.made_ = std::move(norm);
    return verdict;
  }

  // Returns whether it is known by now that the step was left out.
  bool is_left_out() const { return norm_ == nullptr && !there_.defined() && !updated_; }
  // Returns whether there was an update. Waits for the norm where it is on its way.
  bool updated() const { return norm_ == nullptr ? updated_ : std::isfinite(norm_->value()); }
  // Returns a boolean of the sums' device; undefined where the host knows.
  const torch::Tensor& there() const { return there_; }
  // Returns the verdict of the run that the device has got last, of of_runs(); else the same one.
  Verdict of_last_run() const {
    return made_.defined() ? Verdict(backend_of(made_.device()).fetch(made_), there_) : *this;
  }

 private:
  bool updated_ = false;
  std::shared_ptr<const ArrivingNumber> norm_;
  torch::Tensor there_;
  torch::Tensor made_;
};

}  // namespace cohort
