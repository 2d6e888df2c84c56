#include "train/loop/improvement.h"

#include <cmath>

#include "train/loop/events.h"

namespace cohort {

bool Best::better(double number, std::optional<double> than) const {
  if (!than) return !std::isnan(number);
  return up_ ? number - min_delta_ > *than : number + min_delta_ < *than;
}

bool Best::take(double number) {
  if (!better(number, number_)) return false;
  number_ = number;
  return true;
}

bool EarlyStopRule::improves(double number) {
  ++waited_;
  if (!best_.take(number)) return false;
  if (!baseline_ || best_.better(number, baseline_)) waited_ = 0;
  return true;
}

CallbackState EarlyStopRule::state() const {
  CallbackState state{.values = {{"wait", state_text(waited_)}}};
  if (best_.number()) state.values["best"] = state_text(*best_.number());
  return state;
}

void EarlyStopRule::load_state(const CallbackState& state) {
  best_.set(state_number(state, "best"));
  waited_ = static_cast<int64_t>(state_number(state, "wait").value_or(0));
}

void save_if_best(const StrategyCore& core, Best& best, std::optional<double> number,
                  const std::function<void()>& save) {
  const Best before = best;
  const bool improved = number && best.take(*number);
  if (core.text_from_chief(improved ? "yes" : "no") != "yes") return;
  try {
    save();
  } catch (...) {
    best = before;  // what could not be saved is not what later ones have to beat
    throw;
  }
}

}  // namespace cohort
