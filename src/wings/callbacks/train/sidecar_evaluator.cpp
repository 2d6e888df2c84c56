#include "cohort/train/sidecar_evaluator.h"

#include "base/fail.h"
#include "train/loop/loop.h"

namespace cohort {

SidecarEvaluator::SidecarEvaluator(Model model, Dataset data, SidecarEvaluatorOptions options)
    : model_(std::move(model)), data_(std::move(data)), options_(std::move(options)) {
  if (options_.checkpoint_dir.empty()) fail<InvalidArgument>("[evaluator] checkpoint_dir is empty, wanted a folder");
  if (!data_.is_batched()) fail<InvalidArgument>("[evaluator] the dataset is not batched; call batch(size) on it");
  if (options_.max_evaluations < 0) {
    fail<InvalidArgument>("[evaluator] max_evaluations is ", options_.max_evaluations, ", wanted 0 or more");
  }
}

int64_t SidecarEvaluator::start() {
  if (!model_.built()) {
    const std::optional<Example> first = data_.iterator({.epoch = 0}).next();
    if (!first) fail<InvalidArgument>("[evaluator] the dataset is empty");
    const torch::Tensor& input = first->input();
    model_.build(Shape(input.sizes().slice(1).vec()), input.scalar_type());
  }
  CheckpointFollower checkpoints(options_.checkpoint_dir, options_.follow);
  int64_t left = options_.max_evaluations;  // 0: any number
  return evaluate_checkpoints(
      checkpoints, "[evaluator]", [&](const auto& checkpoint) { model_.load_weights(checkpoint); },
      [&] {
        model_.evaluate(data_, options_.evaluate);
        return left == 0 || --left > 0;
      });
}

}  // namespace cohort
