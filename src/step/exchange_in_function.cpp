// The exchange and the update of a step, which may be a part of a cohort::function that is being recorded: then its
// numbers are noted, to be computed anew for each run of the function's program.
#include "base/fail.h"
#include "record/function_recording.h"
#include "step/step.h"

namespace cohort {

StepContext Step::context(int local_id, double scale) const {
  StepContext now = step_context(rule_.gradient(), state_.schedule(), state_.of(local_id).iterations);
  now.grad_scale = scale;
  return now;
}

// Returns whether there was an update; every replica of every worker comes to the same answer. `scale` is what the sums
// are to be multiplied with.
bool Step::exchange(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, double scale) {
  const int id = replica.local_id();
  if (!record::FunctionRecording::is_tracing()) {
    return exchange_->step(replica, std::move(gradients), reduced, context(id, scale));
  }
  // The program is kept, and its numbers are those of each call.
  const std::weak_ptr<Step> self = weak_from_this();
  const auto again = [self, id, scale]() -> std::optional<record::HostPart::Again> {
    const std::shared_ptr<Step> step = self.lock();
    if (step == nullptr) return std::nullopt;
    record::HostPart::Again recorded = step->exchange_->update_again(id, step->context(id, scale));
    ++step->state_.of(id).iterations;
    return recorded;
  };
  const auto undo = [self, id] {
    if (const std::shared_ptr<Step> step = self.lock()) --step->state_.of(id).iterations;
  };
  bool updated = false;
  const auto first = [&] { updated = exchange_->step(replica, std::move(gradients), reduced, context(id, scale)); };
  record::FunctionRecording::add_part(first, {.again = again, .undo = undo});
  return updated;
}

// A program that is kept has an update in each run.
void Step::require_recordable(const Replica& replica) const {
  const GradientOptions& options = rule_.gradient();
  if (!record::FunctionRecording::is_tracing()) return;
  if (!options.loss_scale && options.gradient_accumulation_steps == 1) return;
  fail<Unimplemented>("[optimizer] ", rule_.name(), ": minimize() within a cohort::function on ", replica.device(),
                      " with a ", options.loss_scale ? "loss_scale" : "gradient_accumulation_steps",
                      ": the host decides at each step whether there is an update, which a function that is recorded "
                      "does not see; call it outside of the function");
}

}  // namespace cohort
