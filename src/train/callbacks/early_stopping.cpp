#include "base/fail.h"
#include "base/log.h"
#include "cohort/model.h"
#include "train/callbacks/monitor.h"
#include "train/loop/events.h"

namespace cohort {

namespace {

class EarlyStop final : public Callback {
 public:
  explicit EarlyStop(EarlyStoppingOptions options)
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
    const std::optional<double> current = monitor_.read(logs);
    if (!current) return;
    // Should nothing ever improve (a NaN does not), the first weights are the best there are.
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

}  // namespace

CallbackPtr EarlyStopping(const EarlyStoppingOptions& options) {
  return std::make_shared<EarlyStop>(options);
}

}  // namespace cohort
