// Callbacks that save: BackupAndRestore the whole training, ModelCheckpoint the best model, whose number is a part of
// the state of its training.
#include <fmt/args.h>
#include <fmt/format.h>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "cohort/checkpoint.h"
#include "cohort/preemption.h"
#include "cohort/train/model.h"
#include "cohort/train/more_callbacks.h"
#include "cohort/train/training_run.h"
#include "strategy/core.h"
#include "train/loop/events.h"
#include "train/loop/improvement.h"
#include "train/loop/worker_checkpoints.h"
#include "train/model/keras_files.h"

namespace cohort {

namespace {

void check_options(const char* speaker, const char* place, const std::string& path, int64_t save_freq) {
  if (path.empty()) fail<InvalidArgument>("[callbacks] ", speaker, ": ", place, " is empty, wanted a path");
  if (save_freq >= 0) return;
  fail<InvalidArgument>("[callbacks] ", speaker, ": save_freq is ", save_freq,
                        ", wanted a number of batches, or 0 for epochs");
}

// Counts the batches of a training, over its epochs.
class Batches {
 public:
  explicit Batches(int64_t save_freq) : save_freq_(save_freq) {}

  // Adds the batches that have just been done. Returns whether a multiple of save_freq is among them.
  bool make_due(const RunInfo& run) {
    done_ += run.steps;
    return save_freq_ > 0 && done_ % save_freq_ < run.steps;
  }
  int64_t done() const { return done_; }
  void set(int64_t done) { done_ = done; }

 private:
  int64_t save_freq_;
  int64_t done_ = 0;
};

class Backup final : public Callback {
 public:
  explicit Backup(BackupAndRestoreOptions options) : options_(std::move(options)), batches_(options_.save_freq) {
    check_options("BackupAndRestore", "directory", options_.directory, options_.save_freq);
  }

  void on_train_begin(const RunInfo& run) override {
    const bool resumed = run.training->resume_together([&]() -> std::optional<CheckpointData> {
      checkpoints_.emplace(*Access::core(run.model.strategy()), options_.directory,
                           CheckpointManagerOptions{.name = "backup", .max_to_keep = 2}, options_.sharded);
      auto checkpoint = checkpoints_->restore_latest({"model", "optimizer"});
      if (!checkpoint) return std::nullopt;
      return std::move(checkpoint->data);
    });
    watch(run);
    if (resumed) {
      log().info("[callbacks] BackupAndRestore: goes on in epoch {} after batch {}", run.epoch + 1, run.batch);
    }
  }

  void on_batch_end(const RunInfo& run, const BatchLogs& /*logs*/) override {
    if (batches_.make_due(run)) save(run);
  }
  void on_epoch_end(const RunInfo& run, Logs& /*logs*/) override {
    if (options_.save_freq == 0) save(run);
  }

  void on_preemption(const RunInfo& run) override {
    save(run);
    checkpoints_->wait();
    log().warn("[callbacks] BackupAndRestore: step {} is saved before the preemption", run.step);
  }

  // It is called after the callbacks that save the best model, because the best number is a part of the backup.
  int turn() const override { return 2; }

  void on_train_end(const RunInfo& run, const Logs& /*logs*/) override {
    options_.delete_checkpoint ? checkpoints_->clear() : checkpoints_->finish();
    checkpoints_.reset();
  }

 private:
  void watch(const RunInfo& run) {
    if (!options_.save_before_preemption && !options_.preempted) return;
    // The watcher belongs to the run, not to this object: SIGTERM is what it was before when fit() ends, however it
    // ends.
    const auto watcher = options_.save_before_preemption ? std::make_shared<PreemptionWatcher>() : nullptr;
    run.training->end_when([watcher, preempted = options_.preempted] {
      return (watcher && watcher->preempted()) || (preempted && preempted());
    });
  }

  void save(const RunInfo& run) {
    // It may turn out here that the last step was left out, so that the run's step is another one then.
    const CheckpointData data = options_.sharded ? run.training->save_shards() : run.training->save();
    checkpoints_->save(run.step, data);
  }

  BackupAndRestoreOptions options_;
  Batches batches_;
  std::optional<WorkerCheckpoints> checkpoints_;
};

class BestModel final : public Callback {
 public:
  explicit BestModel(ModelCheckpointOptions options)
      : options_(std::move(options)),
        monitor_("ModelCheckpoint", options_.monitor, options_.mode, 0.0),
        best_(false, 0.0, options_.initial_value_threshold),
        batches_(options_.save_freq) {
    check_options("ModelCheckpoint", "filepath", options_.filepath, options_.save_freq);
    const std::string suffix = std::filesystem::path(options_.filepath).extension();
    if (suffix != (options_.save_weights_only ? ".keras" : ".h5")) return;
    fail<InvalidArgument>("[callbacks] ModelCheckpoint: filepath \"", options_.filepath, "\" is for ",
                          options_.save_weights_only ? "a whole model, and save_weights_only is true"
                                                     : "weights, and save_weights_only is false");
  }

  void on_train_begin(const RunInfo& run) override {
    if (!options_.save_best_only) return;
    if (options_.save_freq > 0) monitor_.require_measured(run.model);
    best_ = monitor_.begin(run.model, best_.number());
  }
  void on_batch_end(const RunInfo& run, const BatchLogs& logs) override {
    if (batches_.make_due(run)) save_here(run, logs.read());
  }
  void on_epoch_end(const RunInfo& run, Logs& logs) override {
    if (options_.save_freq == 0) save_here(run, logs);
  }

  int turn() const override { return options_.save_weights_only ? 0 : 1; }
  std::string state_name() const override {
    return options_.save_best_only || options_.save_freq > 0 ? "model_checkpoint" : "";
  }
  CallbackState state() const override {
    CallbackState state;
    if (options_.save_freq > 0) state.values["batches"] = state_text(batches_.done());
    if (options_.save_best_only && best_.number()) state.values["best"] = state_text(*best_.number());
    return state;
  }
  void load_state(const CallbackState& state) override {
    batches_.set(static_cast<int64_t>(state_number(state, "batches").value_or(0)));
    if (options_.save_best_only) best_.set(state_number(state, "best"));
  }

 private:
  // Every worker has logs of its own within an epoch; the chief's count.
  void save_here(const RunInfo& run, const Logs& logs) {
    if (!options_.save_best_only) return save(run, logs);
    save_if_best(*Access::core(run.model.strategy()), best_, monitor_.read(run, logs), [&] { save(run, logs); });
  }

  void save(const RunInfo& run, const Logs& logs) {
    const std::filesystem::path path = place(run, logs);
    if (options_.verbose) log().info("[callbacks] ModelCheckpoint: epoch {}: saving {}", run.epoch + 1, path.string());
    const bool keras = path.extension() == ".keras";
    if (options_.save_weights_only || keras) {
      run.training->on_chief("ModelCheckpoint", [&] { make_folder(path); });
      return keras ? keras_files(path).save_model(run.model, path) : run.model.save_weights(path);
    }
    const CheckpointData data = run.training->save();
    run.training->on_chief("ModelCheckpoint", [&] { save_checkpoint(path, run.step, data); });
  }

  static void make_folder(const std::filesystem::path& path) {
    std::error_code error;
    if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
    if (!error) return;
    fail<Unavailable>("[callbacks] ModelCheckpoint: ", path.parent_path().string(),
                      " cannot be made: ", error.message());
  }

  std::filesystem::path place(const RunInfo& run, const Logs& logs) const {
    fmt::dynamic_format_arg_store<fmt::format_context> places;
    places.push_back(fmt::arg("epoch", run.epoch + 1));
    places.push_back(fmt::arg("batch", run.batch + 1));
    for (const auto& [name, value] : logs) places.push_back(fmt::arg(name.c_str(), value));
    try {
      return fmt::vformat(options_.filepath, places);
    } catch (const fmt::format_error& error) {
      std::string names = "epoch, batch";
      for (const auto& [name, value] : logs) names += ", " + name;
      fail<InvalidArgument>("[callbacks] ModelCheckpoint: filepath \"", options_.filepath, "\": ", error.what(),
                            "; its places may be ", names);
    }
  }

  ModelCheckpointOptions options_;
  Monitor monitor_;
  Best best_;
  Batches batches_;
};

}  // namespace

CallbackPtr BackupAndRestore(const BackupAndRestoreOptions& options) {
  return std::make_shared<Backup>(options);
}

CallbackPtr ModelCheckpoint(const ModelCheckpointOptions& options) {
  return std::make_shared<BestModel>(options);
}

}  // namespace cohort
