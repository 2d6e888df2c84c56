#include <utility>

#include "cohort/train/callbacks.h"

namespace cohort {

namespace {

class Functions final : public Callback {
 public:
  explicit Functions(CallbackFunctions functions) : functions_(std::move(functions)) {}

  void on_train_begin(const RunInfo& run) override { call(functions_.on_train_begin, run); }
  void on_train_end(const RunInfo& run, const Logs& logs) override { call(functions_.on_train_end, run, logs); }
  void on_epoch_begin(const RunInfo& run) override { call(functions_.on_epoch_begin, run); }
  void on_epoch_end(const RunInfo& run, Logs& logs) override { call(functions_.on_epoch_end, run, logs); }
  void on_batch_begin(const RunInfo& run) override { call(functions_.on_batch_begin, run); }
  void on_batch_end(const RunInfo& run, const BatchLogs& logs) override { call(functions_.on_batch_end, run, logs); }
  void on_preemption(const RunInfo& run) override { call(functions_.on_preemption, run); }
  void on_test_begin(const RunInfo& run) override { call(functions_.on_test_begin, run); }
  void on_test_end(const RunInfo& run, const Logs& logs) override { call(functions_.on_test_end, run, logs); }
  void on_test_batch_begin(const RunInfo& run) override { call(functions_.on_test_batch_begin, run); }
  void on_test_batch_end(const RunInfo& run, const BatchLogs& logs) override {
    call(functions_.on_test_batch_end, run, logs);
  }
  void on_predict_begin(const RunInfo& run) override { call(functions_.on_predict_begin, run); }
  void on_predict_end(const RunInfo& run) override { call(functions_.on_predict_end, run); }
  void on_predict_batch_begin(const RunInfo& run) override { call(functions_.on_predict_batch_begin, run); }
  void on_predict_batch_end(const RunInfo& run) override { call(functions_.on_predict_batch_end, run); }

 private:
  template <typename Fn, typename... Args>
  static void call(const Fn& fn, Args&&... args) {
    if (fn) fn(std::forward<Args>(args)...);
  }

  CallbackFunctions functions_;
};

}  // namespace

CallbackPtr LambdaCallback(CallbackFunctions functions) {
  return std::make_shared<Functions>(std::move(functions));
}

}  // namespace cohort
