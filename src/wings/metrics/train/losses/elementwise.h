// Losses that are functions of single values.
#pragma once

#include <string>
#include <utility>

#include "cohort/train/loss.h"
#include "train/losses/support.h"

namespace cohort {

// A rule that is no more than a function of the prediction and the target of its shape and dtype.
class ElementwiseLoss : public LossRule {
 public:
  using Compute = torch::Tensor (*)(const torch::Tensor& prediction, const torch::Tensor& target);

  // kMean: the values are the elements', of which the loss is the mean over the last dimension, and fit_values() fits
  // them; kOwn: they are as the function returns them.
  enum class Last { kMean, kOwn };

  ElementwiseLoss(std::string name, Last last, Compute compute)
      : name_(std::move(name)), speaker_("[losses] " + name_), last_(last), compute_(compute) {}

  const std::string& name() const override { return name_; }
  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    if (last_ == Last::kOwn) return compute_(prediction, fit_target(speaker_, y, prediction));
    const Fitted fitted = fit_values(speaker_, y, prediction);
    return compute_(fitted.prediction, fitted.target);
  }
  bool averages_last() const override { return last_ == Last::kMean; }

 private:
  std::string name_;
  std::string speaker_;
  Last last_;
  Compute compute_;
};

}  // namespace cohort
