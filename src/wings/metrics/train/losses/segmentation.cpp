// Losses of overlaps. By default a loss is of the batch as a whole: a fraction of sums over all examples, so that
// replicas add up their sums before any of them knows its loss
#include <ATen/Functions.h>

#include <algorithm>

#include "base/fail.h"
#include "cohort/train/more_losses.h"
#include "train/losses/support.h"

namespace cohort {

namespace {

// 1 - hits / (hits + alpha * missed + beta * in excess). With one half for both it is Dice's.
class Overlap final : public BatchLossRule {
 public:
  struct Options {
    std::string name;
    double alpha = 0.5;
    double beta = 0.5;
    double epsilon = kKerasEpsilon;  // keeps the divisor from 0
    std::vector<int64_t> axis;
  };

  explicit Overlap(Options options) : options_(std::move(options)), speaker_("[losses] " + options_.name) {}

  const std::string& name() const override { return options_.name; }
  bool needs_whole_batch() const override {
    return options_.axis.empty() || std::find(options_.axis.begin(), options_.axis.end(), 0) != options_.axis.end();
  }
  Values values_within(const WholeBatch& batch, const torch::Tensor& y,
                       const torch::Tensor& prediction) const override {
    const torch::Tensor target = fit_target(speaker_, y, prediction);
    const std::vector<int64_t> axis = dimensions(prediction);
    const bool whole = std::find(axis.begin(), axis.end(), 0) != axis.end();
    // All parts of a batch add up these: hits, what there is to hit, what is predicted.
    torch::Tensor sums = at::stack({(target * prediction).sum(axis), target.sum(axis), prediction.sum(axis)});
    if (whole) sums = batch.sum(sums);
    const torch::Tensor hits = sums[0], missed = sums[1] - hits, in_excess = sums[2] - hits;
    const torch::Tensor divisor = hits + options_.alpha * missed + options_.beta * in_excess + options_.epsilon;
    return {.each = 1.0 - hits / divisor, .counted = {}, .of_batch = whole};
  }

 private:
  std::vector<int64_t> dimensions(const torch::Tensor& prediction) const {
    std::vector<int64_t> axis;
    if (options_.axis.empty()) {
      for (int64_t i = 0; i < prediction.dim(); ++i) axis.push_back(i);
      return axis;
    }
    for (const int64_t each : options_.axis) {
      if (each < -prediction.dim() || each >= prediction.dim()) {
        fail<InvalidArgument>(speaker_, ": axis has ", each, ", but the prediction has shape ", prediction.sizes());
      }
      axis.push_back(each < 0 ? each + prediction.dim() : each);
    }
    return axis;
  }

  Options options_;
  std::string speaker_;
};

}  // namespace

Loss Dice(const DiceOptions& options) {
  // Keras adds epsilon to a divisor that is twice this one.
  return Loss(std::make_shared<Overlap>(
                  Overlap::Options{.name = options.name, .epsilon = kKerasEpsilon / 2.0, .axis = options.axis}),
              options.reduction);
}

Loss Tversky(const TverskyOptions& options) {
  return Loss(std::make_shared<Overlap>(Overlap::Options{
                  .name = options.name, .alpha = options.alpha, .beta = options.beta, .axis = options.axis}),
              options.reduction);
}

}  // namespace cohort
