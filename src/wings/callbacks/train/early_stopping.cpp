// Early stopping by one rule, for Keras' callbacks (EarlyStopping) and for a Controller's actions (EarlyStop).
#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "cohort/train/actions.h"
#include "cohort/train/model.h"
#include "cohort/train/more_callbacks.h"
#include "strategy/core.h"
#include "train/loop/events.h"
#include "train/loop/improvement.h"

namespace cohort {

namespace {

// Stops a training whose number has not improved for some time. Source: Keras' EarlyStopping.
class EarlyStopRule {
 public:
  EarlyStopRule() = default;
  // Takes the number of evaluations without improvement after which to stop. Evaluations that do not improve upon the
  // baseline count, too.
  EarlyStopRule(const Best& best, int64_t patience, std::optional<double> baseline = std::nullopt)
      : best_(best), patience_(patience), baseline_(baseline) {}

  // Looks at the number of an evaluation, and returns whether it is the best so far.
  bool improves(double number) {
    ++waited_;
    if (!best_.take(number)) return false;
    if (!baseline_ || best_.better(number, baseline_)) waited_ = 0;
    return true;
  }
  bool exhausted() const { return waited_ >= patience_; }
  int64_t waited() const { return waited_; }

  CallbackState state() const {
    CallbackState state{.values = {{"wait", state_text(waited_)}}};
    if (best_.number()) state.values["best"] = state_text(*best_.number());
    return state;
  }
  void load_state(const CallbackState& state) {
    best_.set(state_number(state, "best"));
    waited_ = static_cast<int64_t>(state_number(state, "wait").value_or(0));
  }

 private:
  Best best_;
  int64_t patience_ = 0;
  std::optional<double> baseline_;
  int64_t waited_ = 0;
};

class EarlyStoppingCallback final : public Callback {
 public:
  explicit EarlyStoppingCallback(EarlyStoppingOptions options)
      : options_(std::move(options)), monitor_("EarlyStopping", options_.monitor, options_.mode, options_.min_delta) {
    if (options_.patience < 0) {
      fail<InvalidArgument>("[callbacks] EarlyStopping: patience must not be negative, got ", options_.patience);
    }
  }

  void on_train_begin(const RunInfo& run) override {
    rule_ = EarlyStopRule(monitor_.begin(run.model), options_.patience, options_.baseline);
    best_weights_.clear();
    best_epoch_ = -1;
  }

  void on_epoch_end(const RunInfo& run, Logs& logs) override {
    if (run.epoch < options_.start_from_epoch) return;
    const std::optional<double> current = monitor_.read(run, logs);
    if (!current) return;
    // The first weights are the best if nothing ever improves upon them, as a NaN does not.
    if (options_.restore_best_weights && best_weights_.empty()) keep(run);
    if (rule_.improves(*current)) {
      if (options_.restore_best_weights) keep(run);
      return;
    }
    if (!rule_.exhausted() || run.epoch == 0) return;
    log().info("[callbacks] EarlyStopping: epoch {}: {} has not improved for {} epochs", run.epoch + 1,
               options_.monitor, rule_.waited());
    run.model.stop_training();
  }

  void on_train_end(const RunInfo& run, const Logs& /*logs*/) override {
    if (best_weights_.empty()) return;
    log().info("[callbacks] EarlyStopping: back to the weights of epoch {}", best_epoch_ + 1);
    run.model.set_weights(best_weights_);
    best_weights_.clear();
  }

  std::string state_name() const override { return "early_stopping"; }
  CallbackState state() const override {
    CallbackState state = rule_.state();
    state.values["best_epoch"] = state_text(best_epoch_);
    state.tensors = best_weights_;
    return state;
  }
  void load_state(const CallbackState& state) override {
    rule_.load_state(state);
    best_epoch_ = static_cast<int64_t>(state_number(state, "best_epoch").value_or(-1));
    if (options_.restore_best_weights) best_weights_ = state.tensors;
  }

 private:
  void keep(const RunInfo& run) {
    best_weights_ = run.model.weights();
    best_epoch_ = run.epoch;
  }

  EarlyStoppingOptions options_;
  Monitor monitor_;
  EarlyStopRule rule_;
  NamedTensors best_weights_;
  int64_t best_epoch_ = -1;
};

class EarlyStopAction final : public Listener {
 public:
  // The first evaluation beyond the patience stops the training here; Keras' rule stops it at the last one within it.
  explicit EarlyStopAction(EarlyStopOptions options)
      : options_(std::move(options)), rule_(Best(options_.comparison, options_.min_delta), options_.patience + 1) {
    if (options_.metric.empty()) fail<InvalidArgument>("[actions] EarlyStop: metric is empty, wanted a name");
    if (options_.patience < 0) {
      fail<InvalidArgument>("[actions] EarlyStop: patience is ", options_.patience, ", wanted 0 or more");
    }
  }

  void operator()(const ActionInfo& info) {
    const StrategyCore& core = *Access::core(info.controller.strategy());
    const std::optional<double> number = number_from_chief(core, info.logs[options_.metric]);
    if (rule_.improves(number.value()) || !rule_.exhausted()) return;
    log().info("[actions] EarlyStop: {} has not improved for {} evaluations", options_.metric, rule_.waited());
    info.controller.stop();
  }

  std::string state_name() const override { return "early_stop"; }
  CallbackState state() const override { return rule_.state(); }
  void load_state(const CallbackState& state) override { rule_.load_state(state); }

 private:
  EarlyStopOptions options_;
  EarlyStopRule rule_;
};

}  // namespace

CallbackPtr EarlyStopping(const EarlyStoppingOptions& options) {
  return std::make_shared<EarlyStoppingCallback>(options);
}

Action EarlyStop(const EarlyStopOptions& options) {
  const auto action = std::make_shared<EarlyStopAction>(options);
  return {[action](const ActionInfo& info) { (*action)(info); }, action};
}

}  // namespace cohort
