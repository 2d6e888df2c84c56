// Callbacks that change the learning rate from epoch to epoch.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "cohort/train/model.h"
#include "cohort/train/more_callbacks.h"
#include "strategy/core.h"
#include "train/loop/events.h"
#include "train/loop/improvement.h"

namespace cohort {

namespace {

void require_constant_rate(const Model& model, std::string_view who) {
  const Schedule& rate = model.optimizer().rule().learning_rate();
  if (rate.is_constant()) return;
  fail<FailedPrecondition>("[callbacks] ", who, ": the optimizer's learning rate is the schedule \"", rate.name(),
                           "\"; give it a number, so that this callback can change it");
}

class RateSchedule final : public Callback {
 public:
  explicit RateSchedule(std::function<double(int64_t, double)> schedule) : schedule_(std::move(schedule)) {
    if (!schedule_) fail<InvalidArgument>("[callbacks] LearningRateScheduler: the function is empty");
  }

  void on_train_begin(const RunInfo& run) override {
    require_constant_rate(run.model, "LearningRateScheduler");
    epoch_ = -1;
  }

  void on_epoch_begin(const RunInfo& run) override {
    require_constant_rate(run.model, "LearningRateScheduler");  // a callback may have compiled the model anew
    const MirroredOptimizer& optimizer = run.model.optimizer();
    // An epoch that was interrupted begins twice, but the function is given the rate that it found the first time.
    if (std::exchange(epoch_, run.epoch) != run.epoch) found_ = optimizer.learning_rate();
    const double rate = *number_from_chief(*Access::core(run.model.strategy()), schedule_(run.epoch, found_));
    if (!std::isfinite(rate) || rate < 0.0) {
      fail<InvalidArgument>("[callbacks] LearningRateScheduler: the function returned ", rate, " for epoch ", run.epoch,
                            ", wanted a rate of 0 or more");
    }
    optimizer.set_learning_rate(rate);
  }

  void on_epoch_end(const RunInfo& run, Logs& logs) override {
    logs.set("learning_rate", run.model.optimizer().learning_rate());
  }

  std::string state_name() const override { return "learning_rate_scheduler"; }
  CallbackState state() const override {
    return {.values = {{"epoch", state_text(epoch_)}, {"learning_rate", state_text(found_)}}};
  }
  void load_state(const CallbackState& state) override {
    epoch_ = static_cast<int64_t>(state_number(state, "epoch").value_or(-1));
    found_ = state_number(state, "learning_rate").value_or(0.0);
  }

 private:
  std::function<double(int64_t, double)> schedule_;
  int64_t epoch_ = -1;  // the epoch that has begun
  double found_ = 0.0;  // the rate before that epoch
};

class PlateauRate final : public Callback {
 public:
  explicit PlateauRate(ReduceLROnPlateauOptions options)
      : options_(std::move(options)),
        monitor_("ReduceLROnPlateau", options_.monitor, options_.mode, options_.min_delta) {
    if (!(options_.factor > 0.0 && options_.factor < 1.0)) {
      fail<InvalidArgument>("[callbacks] ReduceLROnPlateau: factor must be in (0, 1), got ", options_.factor);
    }
    if (options_.patience < 0 || options_.cooldown < 0) {
      fail<InvalidArgument>("[callbacks] ReduceLROnPlateau: patience and cooldown must not be negative, got ",
                            options_.patience, " and ", options_.cooldown);
    }
  }

  void on_train_begin(const RunInfo& run) override {
    require_constant_rate(run.model, "ReduceLROnPlateau");
    best_ = monitor_.begin(run.model);
    waited_ = cooling_ = 0;
  }

  void on_epoch_end(const RunInfo& run, Logs& logs) override {
    const MirroredOptimizer& optimizer = run.model.optimizer();
    const double rate = optimizer.learning_rate();
    logs.set("learning_rate", rate);
    const std::optional<double> current = monitor_.read(run, logs);
    if (!current) return;
    if (cooling_ > 0) {
      --cooling_;
      waited_ = 0;
    }
    if (best_.take(*current)) {
      waited_ = 0;
      return;
    }
    if (cooling_ > 0 || ++waited_ < options_.patience || rate <= options_.min_lr) return;
    require_constant_rate(run.model, "ReduceLROnPlateau");  // a callback may have compiled the model anew
    const double reduced = std::max(rate * options_.factor, options_.min_lr);
    log().info("[callbacks] ReduceLROnPlateau: epoch {}: learning rate {} -> {}", run.epoch + 1, rate, reduced);
    optimizer.set_learning_rate(reduced);
    cooling_ = options_.cooldown;
    waited_ = 0;
  }

  std::string state_name() const override { return "reduce_lr_on_plateau"; }
  CallbackState state() const override {
    CallbackState state{.values = {{"wait", state_text(waited_)}, {"cooldown", state_text(cooling_)}}};
    if (best_.number()) state.values["best"] = state_text(*best_.number());
    return state;
  }
  void load_state(const CallbackState& state) override {
    best_.set(state_number(state, "best"));
    waited_ = static_cast<int64_t>(state_number(state, "wait").value_or(0));
    cooling_ = static_cast<int64_t>(state_number(state, "cooldown").value_or(0));
  }

 private:
  ReduceLROnPlateauOptions options_;
  Monitor monitor_;
  Best best_;
  int64_t waited_ = 0;
  int64_t cooling_ = 0;
};

}  // namespace

CallbackPtr LearningRateScheduler(std::function<double(int64_t epoch, double learning_rate)> schedule) {
  return std::make_shared<RateSchedule>(std::move(schedule));
}

CallbackPtr ReduceLROnPlateau(const ReduceLROnPlateauOptions& options) {
  return std::make_shared<PlateauRate>(options);
}

}  // namespace cohort
