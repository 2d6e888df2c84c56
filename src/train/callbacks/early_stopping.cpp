#include "base/fail.h"
#include "base/log.h"
#include "cohort/model.h"
#include "train/callbacks/monitor.h"
#include "train/callbacks/states.h"

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
    monitor_.begin(run.model);
    best_.reset();
    best_weights_.clear();
    best_epoch_ = -1;
    waited_ = 0;
  }

  void on_epoch_end(const RunInfo& run, Logs& logs) override {
    if (run.epoch < options_.start_from_epoch) return;
    const std::optional<double> current = monitor_.read(logs);
    if (!current) return;
    // Should nothing ever improve (a NaN does not), the first weights are the best there are.
    if (options_.restore_best_weights && best_weights_.empty()) keep(run);
    ++waited_;
    if (monitor_.better(*current, best_)) {
      best_ = current;
      if (options_.restore_best_weights) keep(run);
      if (!options_.baseline || monitor_.better(*current, options_.baseline)) waited_ = 0;
      return;
    }
    if (waited_ < options_.patience || run.epoch == 0) return;
    log().info("[callbacks] EarlyStopping: epoch {}: {} has not improved for {} epochs", run.epoch + 1,
               options_.monitor, waited_);
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
    CallbackState state{.values = {{"wait", state_text(waited_)}, {"best_epoch", state_text(best_epoch_)}},
                        .tensors = best_weights_};
    if (best_) state.values["best"] = state_text(*best_);
    return state;
  }
  void load_state(const CallbackState& state) override {
    best_ = state_number(state, "best");
    waited_ = static_cast<int64_t>(state_number(state, "wait").value_or(0));
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
  std::optional<double> best_;
  NamedTensors best_weights_;
  int64_t best_epoch_ = -1;
  int64_t waited_ = 0;
};

}  // namespace

CallbackPtr EarlyStopping(const EarlyStoppingOptions& options) {
  return std::make_shared<EarlyStop>(options);
}

}  // namespace cohort
