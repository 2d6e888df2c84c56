#include "train/model/fit_options.h"

#include "base/fail.h"

namespace cohort {

void require_fit_options(const FitOptions& options, int64_t cardinality, const std::string& speaker) {
  const auto not_negative = [&](std::string_view name, int64_t value) {
    if (value < 0) fail<InvalidArgument>(speaker, name, " must not be negative, got ", value);
  };
  not_negative("epochs", options.epochs);
  not_negative("initial_epoch", options.initial_epoch);
  not_negative("steps_per_epoch", options.steps_per_epoch);
  not_negative("validation_steps", options.validation_steps);
  if (options.validation_freq <= 0) {
    fail<InvalidArgument>(speaker, "validation_freq must be positive, got ", options.validation_freq);
  }
  for (const CallbackPtr& each : options.callbacks) {
    if (!each) fail<InvalidArgument>(speaker, "one of the callbacks is null");
  }
  if (options.steps_per_epoch == 0 && cardinality == kInfiniteCardinality) {
    fail<InvalidArgument>(speaker, "the dataset never ends; set steps_per_epoch");
  }
}

}  // namespace cohort
