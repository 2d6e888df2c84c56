// Recovery, CompareReplicas and ConditionalAction.
#include "cohort/train/actions.h"
#include "cohort/train/model.h"

#include <cmath>
#include <utility>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "strategy/core.h"
#include "train/loop/improvement.h"

namespace cohort {

namespace {

class RecoveryAction {
 public:
  explicit RecoveryAction(const RecoveryOptions& options) : options_(options) {}

  void operator()(const ActionInfo& info) {
    const StrategyCore& core = *Access::core(info.controller.strategy());
    double loss = *number_from_chief(core, info.logs["loss"]);
    if (std::isnan(loss)) loss = std::abs(loss);  // so that the message does not show the sign of a NaN
    const bool large = info.step >= options_.begin_steps && loss > options_.loss_upper_bound;
    if (options_.max_trials < 0 || (!std::isnan(loss) && !large)) return;
    if (++trials_ > options_.max_trials) {
      fail<FailedPrecondition>("[actions] Recovery: the loss is ", loss, " after step ", info.step, ", wanted at most ",
                               options_.loss_upper_bound, "; ", options_.max_trials, " recoveries were allowed");
    }
    if (!info.controller.restore_checkpoint(/*keep_input=*/true)) {
      fail<FailedPrecondition>("[actions] Recovery: the loss is ", loss, " after step ", info.step,
                               ", and there is no checkpoint to go back to");
    }
    log().warn("[actions] Recovery: the loss was {} after step {}; the latest checkpoint is restored, {} of {} times",
               loss, info.step, trials_, options_.max_trials);
  }

 private:
  RecoveryOptions options_;
  int64_t trials_ = 0;
};

}  // namespace

Action Recovery(const RecoveryOptions& options) {
  return [recovery = std::make_shared<RecoveryAction>(options)](const ActionInfo& info) { (*recovery)(info); };
}

Action CompareReplicas(const Model& model, int64_t interval) {
  if (interval < 1) fail<InvalidArgument>("[actions] CompareReplicas: interval is ", interval, ", wanted 1 or more");
  return [model, interval, compared = std::make_shared<int64_t>(-1)](const ActionInfo& info) {
    const int64_t due = info.step / interval;
    if (std::exchange(*compared, due) != due) compare_copies(model.module());
  };
}

Action ConditionalAction(std::function<bool(const ActionInfo&)> condition, Action action) {
  const std::shared_ptr<Listener> listener = action.listener();
  const auto call = [condition = std::move(condition), action = std::move(action)](const ActionInfo& info) {
    if (condition(info)) action(info);
  };
  return {call, listener};
}

}  // namespace cohort
