// The update of a step that is a part of a cohort::function which is being recorded: its numbers are noted, to be
// computed anew for each run of the function's program, and so is what a run counts. step_in_graph.cpp has that of a
// function which is captured as a graph.
#include "device/graph_capture.h"
#include "record/function_recording.h"
#include "step/step.h"

namespace cohort {

bool Step::runs_again() {
  return record::FunctionRecording::is_tracing() || GraphCapture::current() != nullptr;
}

// Returns the scale of the loss, times a factor, as a number that each run of the function has anew.
torch::Tensor Step::renewed_scale(const Replica& replica, const torch::Tensor& like, double factor) const {
  if (GraphCapture* const capture = GraphCapture::current()) {
    if (!graph_numbers_.empty()) {
      const torch::Tensor row = row_in_graph(*capture, replica.local_id());
      return row[factor == 1.0 ? 1 : 0].to(like.scalar_type());
    }
    const std::weak_ptr<const Step> owner = weak_from_this();
    const auto now = [owner, id = replica.local_id(), factor] {
      const std::shared_ptr<const Step> step = owner.lock();
      return step == nullptr ? factor : step->state_->of(id).scaler.scale() * factor;
    };
    return capture->number(now, like.scalar_type(), owner);
  }
  const auto make = [id = replica.local_id(), dtype = like.scalar_type(), device = like.device(),
                     factor](const Step& step) {
    return record::make_number(step.state_->of(id).scaler.scale() * factor, dtype, device);
  };
  const std::weak_ptr<const Step> self = weak_from_this();
  const auto again = [self, make]() -> std::optional<record::HostPart::Again> {
    const std::shared_ptr<const Step> step = self.lock();
    if (step == nullptr) return std::nullopt;
    (void)make(*step);
    return record::HostPart::Again{};
  };
  torch::Tensor scale;
  record::FunctionRecording::add_part([&] { scale = make(*this); }, {.again = again, .undo = [] {}});
  return scale;
}

// Counts a run. Returns false, and counts nothing, if the next call of minimize() is another one: `ends` is whether the
// gradients of so many calls as are accumulated are there then, and the update takes place.
bool Step::count_in_function(int local_id, bool ends) {
  ReplicaProgress& progress = state_->of(local_id);
  if ((progress.accumulated + 1 == rule_.gradient().gradient_accumulation_steps) != ends) return false;
  progress.accumulated = ends ? 0 : progress.accumulated + 1;
  if (ends) ++progress.iterations;
  return true;
}

void Step::uncount_in_function(int local_id, bool ends) {
  ReplicaProgress& progress = state_->of(local_id);
  progress.accumulated = (ends ? rule_.gradient().gradient_accumulation_steps : progress.accumulated) - 1;
  if (ends) --progress.iterations;
}

void Step::update_in_function(Replica& replica, Given given) {
  const int id = replica.local_id();
  const int64_t every = rule_.gradient().gradient_accumulation_steps;
  const bool ends = state_->of(id).accumulated + 1 == every;
  const std::weak_ptr<Step> self = weak_from_this();
  const auto again = [self, id, ends, scaled = given.scaled]() -> std::optional<record::HostPart::Again> {
    const std::shared_ptr<Step> step = self.lock();
    if (step == nullptr) return std::nullopt;
    const StepContext now = step->context(id, scaled);
    if (!step->count_in_function(id, ends)) return std::nullopt;
    return ends ? step->exchange_->update_again(id, now) : record::HostPart::Again{};
  };
  const auto undo = [self, id, ends] {
    if (const std::shared_ptr<Step> step = self.lock()) step->uncount_in_function(id, ends);
  };
  // Whether there was an update is known when the program has run.
  const auto after = [self, id] {
    const std::shared_ptr<Step> step = self.lock();
    if (step == nullptr) return;
    const bool finite = step->exchange_->was_finite(id);
    if (!finite) --step->state_->of(id).iterations;
    step->state_->of(id).scaler.note(finite);
  };
  const auto first = [&] {
    if (every > 1) add(state_->of(id), given.gradients);
    if (ends) {
      if (every > 1) given.gradients = take_sums(state_->of(id));
      exchange_->step(replica, std::move(given.gradients), given.reduced, context(id, given.scaled));
    }
    count_in_function(id, ends);
  };
  record::HostPart part{.again = again, .undo = undo};
  if (ends && rule_.gradient().loss_scale) part.after = after;
  record::FunctionRecording::add_part(first, std::move(part));
}

}  // namespace cohort
