#include "cohort/sidecar_evaluator.h"

#include "base/fail.h"
#include "base/log.h"

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
    model_.build(Shape(first->x.sizes().slice(1).vec()), first->x.scalar_type());
  }
  CheckpointFollower checkpoints(options_.checkpoint_dir, options_.follow);
  int64_t done = 0;
  while (options_.max_evaluations == 0 || done < options_.max_evaluations) {
    const auto checkpoint = checkpoints.next();
    if (!checkpoint) break;
    if (!load(*checkpoint)) continue;
    model_.evaluate(data_, options_.evaluate);
    ++done;
  }
  return done;
}

// False when it is damaged, or gone by now.
bool SidecarEvaluator::load(const std::filesystem::path& checkpoint) const {
  try {
    model_.load_weights(checkpoint);
    return true;
  } catch (const DataLoss& error) {
    if (!std::filesystem::exists(checkpoint)) return false;
    log().warn("[evaluator] {} is damaged and left out: {}", checkpoint.string(), error.what());
  } catch (const NotFound&) {
    if (std::filesystem::exists(checkpoint)) throw;
  }
  return false;
}

}  // namespace cohort
