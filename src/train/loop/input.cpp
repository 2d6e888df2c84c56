// Workers agree on the batch of a step while the step before it runs, and what one of them wants all to hear travels
// with that. So a stop that a callback asks for after step n is heard with the batch of step n + 2, and step n + 1 is
// made. A training that was saved after step n has to make it, too, when it goes on: that is Ending::kAfterNextStep.
#include "train/loop/input.h"

#include <utility>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "strategy/core.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

// The flags that a worker raises to end the training.
constexpr int64_t kStop = 1;
constexpr int64_t kPreempted = 2;

}  // namespace

TrainingInput::TrainingInput(const Strategy& strategy, DistributedDataset data, TrainingInputOptions options)
    : strategy_(strategy), data_(std::move(data)), options_(std::move(options)) {}

bool TrainingInput::stops_alone() const {
  return Access::core(strategy_)->workers().known_total(wants_stop() ? 1 : 0).value_or(0) > 0;
}

bool TrainingInput::any_worker(const std::string& what, bool mine) const {
  return Access::core(strategy_)->any_worker(what, mine);
}

void TrainingInput::begin_epoch(int64_t epoch) {
  if (std::exchange(placed_, false) || (iterator_ && (!options_.pass_an_epoch || ahead_))) return;
  iterator_.emplace(data_.iterator({.epoch = epoch}));
}

const GlobalBatch* TrainingInput::peek() {
  if (ahead_) return &*ahead_;
  if (left_ == 0) stopped_ = true;
  if (left_ == 0) return nullptr;
  const bool stop = wants_stop() && !left_;
  iterator_->raise((stop ? kStop : 0) | (told() ? kPreempted : 0));
  ahead_ = iterator_->next();
  stop_is_on_its_way_ = stop && ahead_;
  stopped_ = stopped_ || (iterator_->raised() & kStop) != 0;
  preempted_ = (iterator_->raised() & kPreempted) != 0;
  return ahead_ ? &*ahead_ : nullptr;
}

std::optional<GlobalBatch> TrainingInput::next() {
  peek();
  if (ahead_ && left_) --*left_;
  return std::exchange(ahead_, std::nullopt);
}

std::string TrainingInput::save(bool epoch_done) {
  return !iterator_ || (epoch_done && options_.pass_an_epoch) ? "" : iterator_->save();
}

Ending TrainingInput::ending(bool epoch_done) const {
  if (!options_.stop) return Ending::kNone;
  const bool wanted = wants_stop();
  const bool now = stopped_ || (wanted && epoch_done) || stops_alone();
  if (any_worker("whether the training ends", now)) return Ending::kNow;
  if (any_worker("whether it ends with the next batch", stop_is_on_its_way_ || left_ == 0))
    return Ending::kBeforeNextStep;
  return any_worker("whether it is to end", wanted) ? Ending::kAfterNextStep : Ending::kNone;
}

bool TrainingInput::restore(const TrainingPosition& position) {
  restart(position.epoch);
  bool fits = !position.input.empty();
  try {
    if (fits) iterator_->restore(position.input);
  } catch (const InvalidArgument& error) {
    log().warn("[input] the input is not the one that was saved: {}", error.what());
    fits = false;
  }
  // The steps of the workers belong together, so either all of them go to their positions or none does.
  if (any_worker("restore the input", !fits)) {
    restart(position.epoch);
    fits = false;
  }
  stopped_ = position.ending == Ending::kNow || (position.ending != Ending::kNone && !fits);
  if (position.ending == Ending::kAfterNextStep) left_ = 1;
  if (position.ending == Ending::kBeforeNextStep) left_ = 0;
  return fits;
}

void TrainingInput::restart(int64_t epoch) {
  ahead_.reset();
  left_.reset();
  preempted_ = stop_is_on_its_way_ = false;
  iterator_.emplace(data_.iterator({.epoch = epoch}));
  placed_ = true;
}

}  // namespace cohort
