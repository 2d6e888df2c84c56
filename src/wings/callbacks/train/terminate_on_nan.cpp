#include <cmath>

#include "base/fail.h"
#include "base/log.h"
#include "cohort/train/model.h"
#include "cohort/train/more_callbacks.h"
#include "device/backend.h"

namespace cohort {

namespace {

// A sum that has met a number that is not finite stays that way, so nothing is missed between two looks.
class NanGuard final : public Callback {
 public:
  explicit NanGuard(const TerminateOnNaNOptions& options) : options_(options) {}

  void on_train_begin(const RunInfo& run) override {
    every_ = 1;
    for (const LogicalDevice& device : run.model.strategy().worker_devices()) {
      if (!backend_of(device.torch_device).is_host()) every_ = kOtherDevices;
    }
  }

  void on_batch_end(const RunInfo& run, const BatchLogs& logs) override {
    if ((run.batch + 1) % every_ < run.steps) check(run, logs.loss());
  }

  void on_epoch_end(const RunInfo& run, Logs& logs) override {
    if (!run.model.stopping()) check(run, logs.find("loss").value_or(0.0));
  }

 private:
  static constexpr int64_t kOtherDevices = 16;

  void check(const RunInfo& run, double loss) const {
    if (std::isfinite(loss)) return;
    if (options_.fail) {
      fail<FailedPrecondition>("[callbacks] TerminateOnNaN: the loss is ", loss, " at batch ", run.batch + 1,
                               " of epoch ", run.epoch + 1, " (step ", run.step,
                               "); a smaller learning rate or clipping may help");
    }
    log().error("[callbacks] TerminateOnNaN: the loss is {} at batch {} of epoch {}; training ends", loss,
                run.batch + 1, run.epoch + 1);
    run.model.stop_training();
  }

  TerminateOnNaNOptions options_;
  int64_t every_ = 1;
};

}  // namespace

CallbackPtr TerminateOnNaN(const TerminateOnNaNOptions& options) {
  return std::make_shared<NanGuard>(options);
}

}  // namespace cohort
