// The update of a step that is a part of a cohort::function which is being recorded: its numbers are noted, to be
// computed anew for each run of the function's program, and so is what a run counts. step_in_graph.cpp has that of a
// function which is captured as a graph.
#include "wings/xla/step/step_in_recording.h"

#include "wings/xla/record/function_recording.h"
#include "wings/xla/step/recorded.h"

namespace cohort {

namespace {

using record::FunctionRecording;
using record::HostPart;

class StepsInRecordings final : public StepEngine {
 public:
  void backward(Step& step, Replica& replica, const torch::Tensor& loss) const override {
    exchange(step).backward(replica, loss);
  }
  torch::Tensor loss_scale(Step& step, const Replica& replica, const torch::Tensor& like, double factor) const override;
  void update(Step& step, Replica& replica, Step::Given given) const override;

 private:
  static RecordedExchange& recorded(const Step& step) { return dynamic_cast<RecordedExchange&>(exchange(step)); }
  static bool count(const Step& step, int local_id, bool ends);
  static void uncount(const Step& step, int local_id, bool ends);
  static void settle(const Step& step, int local_id);
};

torch::Tensor StepsInRecordings::loss_scale(Step& step, const Replica& replica, const torch::Tensor& like,
                                            double factor) const {
  const auto make = [id = replica.local_id(), dtype = like.scalar_type(), device = like.device(),
                     factor](const Step& own) {
    return record::make_number(state(own).of(id).scaler.scale() * factor, dtype, device);
  };
  const std::weak_ptr<Step> self = weak(step);
  const auto again = [self, make]() -> std::optional<HostPart::Again> {
    const std::shared_ptr<Step> own = self.lock();
    if (own == nullptr) return std::nullopt;
    (void)make(*own);
    return HostPart::Again{};
  };
  torch::Tensor scale;
  FunctionRecording::add_part([&] { scale = make(step); }, {.again = again, .undo = [] {}});
  return scale;
}

// Counts a run. Returns false, and counts nothing, if the next call of minimize() is another one: `ends` is whether the
// gradients of so many calls as are accumulated are there then, and the update takes place.
bool StepsInRecordings::count(const Step& step, int local_id, bool ends) {
  ReplicaProgress& progress = state(step).of(local_id);
  if ((progress.accumulated + 1 == step.rule().gradient().gradient_accumulation_steps) != ends) return false;
  progress.accumulated = ends ? 0 : progress.accumulated + 1;
  if (ends) ++progress.iterations;
  return true;
}

void StepsInRecordings::uncount(const Step& step, int local_id, bool ends) {
  ReplicaProgress& progress = state(step).of(local_id);
  progress.accumulated = (ends ? step.rule().gradient().gradient_accumulation_steps : progress.accumulated) - 1;
  if (ends) --progress.iterations;
}

// Counts an update after the program has run, when it is known.
void StepsInRecordings::settle(const Step& step, int local_id) {
  const bool finite = recorded(step).was_finite(local_id);
  if (!finite) --state(step).of(local_id).iterations;
  state(step).of(local_id).scaler.note(finite);
}

void StepsInRecordings::update(Step& step, Replica& replica, Step::Given given) const {
  const int id = replica.local_id();
  const int64_t every = step.rule().gradient().gradient_accumulation_steps;
  const bool ends = state(step).of(id).accumulated + 1 == every;
  const std::weak_ptr<Step> self = weak(step);
  const auto again = [self, id, ends, scaled = given.scaled]() -> std::optional<HostPart::Again> {
    const std::shared_ptr<Step> own = self.lock();
    if (own == nullptr) return std::nullopt;
    const StepContext now = context(*own, id, scaled);
    if (!count(*own, id, ends)) return std::nullopt;
    return ends ? recorded(*own).update_again(id, now) : HostPart::Again{};
  };
  const auto undo = [self, id, ends] {
    if (const std::shared_ptr<Step> own = self.lock()) uncount(*own, id, ends);
  };
  const auto after = [self, id] {
    if (const std::shared_ptr<Step> own = self.lock()) settle(*own, id);
  };
  const auto first = [&] {
    if (every > 1) add(step, id, given.gradients);
    if (ends) {
      if (every > 1) given.gradients = take_sums(step, id);
      exchange(step).step(replica, std::move(given.gradients), given.reduced, context(step, id, given.scaled));
    }
    count(step, id, ends);
  };
  HostPart part{.again = again, .undo = undo};
  if (ends && step.rule().gradient().loss_scale) part.after = after;
  FunctionRecording::add_part(first, std::move(part));
}

}  // namespace

const StepEngine& steps_in_recordings() {
  static const StepsInRecordings kEngine;
  return kEngine;
}

}  // namespace cohort
