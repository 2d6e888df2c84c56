// TensorBoard: the tags and steps are those of Keras' callback, so that its dashboards fit.
#include <chrono>

#include "base/fail.h"
#include "cohort/train/model.h"
#include "cohort/train/more_callbacks.h"
#include "cohort/train/summary.h"

namespace cohort {

namespace {

using Clock = std::chrono::steady_clock;

double per_second(int64_t steps, Clock::time_point since) {
  return static_cast<double>(steps) / std::chrono::duration<double>(Clock::now() - since).count();
}

class Board final : public Callback {
 public:
  explicit Board(TensorBoardOptions options) : options_(std::move(options)) {
    const auto refuse = [](const char* name, int64_t value) {
      fail<InvalidArgument>("[callbacks] TensorBoard: ", name, " is ", value, ", wanted 0 or more");
    };
    if (options_.log_dir.empty()) fail<InvalidArgument>("[callbacks] TensorBoard: log_dir is empty, wanted a folder");
    if (options_.histogram_freq < 0) refuse("histogram_freq", options_.histogram_freq);
    if (options_.update_freq < 0) refuse("update_freq", options_.update_freq);
  }

  void on_epoch_begin(const RunInfo& run) override {
    begun_ = Clock::now();
    first_step_ = run.step;
  }

  void on_batch_end(const RunInfo& run, const BatchLogs& logs) override {
    if (options_.update_freq == 0 || !writes(run)) return;
    if (run.step / options_.update_freq == (run.step - run.steps) / options_.update_freq) return;
    for (const auto& [name, value] : logs.read()) train().scalar("batch_" + name, value, run.step);
    if (!options_.write_steps_per_second) return;
    train().scalar("batch_steps_per_second", per_second(run.step - first_step_, begun_), run.step);
  }

  void on_epoch_end(const RunInfo& run, Logs& logs) override {
    // Under some strategies all workers have to take part in reading weights.
    const bool histograms = options_.histogram_freq > 0 && run.epoch % options_.histogram_freq == 0;
    const NamedTensors weights = histograms ? run.model.weights() : NamedTensors();
    const double rate = run.model.optimizer().learning_rate();
    if (!writes(run)) return;
    for (const auto& [name, value] : logs) {
      if (name.starts_with("val_")) {
        validation().scalar("epoch_" + name.substr(4), value, run.epoch);
      } else if (name != "learning_rate") {
        train().scalar("epoch_" + name, value, run.epoch);
      }
    }
    train().scalar("epoch_learning_rate", rate, run.epoch);
    if (options_.write_steps_per_second) {
      train().scalar("epoch_steps_per_second", per_second(run.step - first_step_, begun_), run.epoch);
    }
    for (const auto& [name, tensor] : weights) {
      if (tensor.is_floating_point()) train().histogram(name + "/histogram", tensor, run.epoch);
    }
    if (train_) train_->flush();
    if (validation_) validation_->flush();
  }

  void on_test_end(const RunInfo& run, const Logs& logs) override {
    if (!writes(run)) return;
    for (const auto& [name, value] : logs)
      validation().scalar("evaluation_" + name + "_vs_iterations", value, run.step);
    validation().flush();
  }

 private:
  static bool writes(const RunInfo& run) { return run.model.strategy().should_save_summary(); }

  SummaryWriter& train() { return train_ ? *train_ : train_.emplace(options_.log_dir / "train"); }
  SummaryWriter& validation() {
    return validation_ ? *validation_ : validation_.emplace(options_.log_dir / "validation");
  }

  TensorBoardOptions options_;
  std::optional<SummaryWriter> train_;
  std::optional<SummaryWriter> validation_;
  Clock::time_point begun_ = Clock::now();
  int64_t first_step_ = 0;
};

}  // namespace

CallbackPtr TensorBoard(const TensorBoardOptions& options) {
  return std::make_shared<Board>(options);
}

}  // namespace cohort
