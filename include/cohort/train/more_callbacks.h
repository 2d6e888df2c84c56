// Callbacks, and an action of a Controller, that save, watch and steer a training:
//
//   model.fit(train, {.epochs = 50, .validation_data = test,
//                     .callbacks = {EarlyStopping({.patience = 3}), CSVLogger({.file = "run.csv"})}});
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "cohort/train/actions.h"
#include "cohort/train/callbacks.h"

namespace cohort {

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";               // the log to watch
  double min_delta = 0.0;                         // a smaller change is no improvement
  int64_t patience = 0;                           // epochs without improvement that are accepted
  MonitorMode mode = MonitorMode::kAuto;          // tells which of two values is better
  std::optional<double> baseline = std::nullopt;  // a number that has to be improved upon
  bool restore_best_weights = false;              // restores them at the end of training, also when it was not stopped
  int64_t start_from_epoch = 0;                   // earlier epochs do not count
};
// Ends training when the monitored log has not improved for `patience` epochs (Keras' EarlyStopping). Where the logs of
// several workers differ, the chief's number decides for all; so it does for the callbacks below.
CallbackPtr EarlyStopping(const EarlyStoppingOptions& options = {});

struct EarlyStopOptions {
  std::string metric;                          // the name of the evaluation's log to watch
  Comparison comparison = Comparison::kLower;  // tells which of two values of the metric is better
  double min_delta = 0.0;                      // a smaller change is no improvement
  int64_t patience = 0;                        // evaluations without improvement that are accepted
};
// Ends the training, as an eval action, when the metric has not improved for more than `patience` evaluations. What it
// has seen is a part of every checkpoint: a run that goes on ends where it would have ended. NotFound: the evaluation
// has no such metric.
Action EarlyStop(const EarlyStopOptions& options);

// Sets the rate of each epoch to schedule(epoch, rate), where `rate` is the one before, and logs it as "learning_rate".
// All workers set the chief's rate. FailedPrecondition: the optimizer was given a Schedule.
CallbackPtr LearningRateScheduler(std::function<double(int64_t epoch, double learning_rate)> schedule);

struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";       // the log to watch
  double factor = 0.1;                    // rate = rate * factor; below 1
  int64_t patience = 10;                  // epochs without improvement that are accepted
  MonitorMode mode = MonitorMode::kAuto;  // tells which of two values is better
  double min_delta = 1e-4;                // a smaller change is no improvement
  int64_t cooldown = 0;                   // epochs after a reduction that do not count
  double min_lr = 0.0;                    // the rate is not made smaller than this
};
// Reduces the rate when the monitored log has not improved for `patience` epochs (Keras' ReduceLROnPlateau), and logs
// it as "learning_rate". FailedPrecondition: the optimizer was given a Schedule.
CallbackPtr ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});

struct TensorBoardOptions {
  std::filesystem::path log_dir = "logs";  // the folder; the files are in "train" and "validation" in it
  int64_t histogram_freq = 0;              // epochs between histograms of all weights; 0: none
  bool write_steps_per_second = false;     // the speed is written, too
  int64_t update_freq = 0;  // batches between points of the logs so far, which waits for the devices; 0: none in epochs
};
// Writes event files that TensorBoard shows (Keras' TensorBoard): "epoch_loss" and the other logs by epoch, those of
// validations beside them, "epoch_learning_rate", and "evaluation_loss_vs_iterations" by steps.
CallbackPtr TensorBoard(const TensorBoardOptions& options = {});

struct CSVLoggerOptions {
  std::filesystem::path file;  // the file of the lines
  char separator = ',';        // between two columns
  bool append = false;         // go on in an existing file
};
// Writes a line for each epoch: the epoch, then the logs under the names of the first epoch. A log that an epoch lacks
// is NA.
CallbackPtr CSVLogger(const CSVLoggerOptions& options);

struct TerminateOnNaNOptions {
  bool fail = false;  // throw FailedPrecondition instead of ending training as Keras does
};
// Ends training when the loss is no longer finite. It looks after every batch on CPUs, and elsewhere after every 16th
// and at the end of the epoch, because looking waits for the device.
CallbackPtr TerminateOnNaN(const TerminateOnNaNOptions& options = {});

struct BackupAndRestoreOptions {
  std::filesystem::path directory;  // a folder for these backups alone
  // Batches between backups; 0: one at the end of every epoch.
  int64_t save_freq = 0;
  // With true, the backups are removed when fit() has come to its end.
  bool delete_checkpoint = true;
  // With true, a SIGTERM on any worker makes all workers save after the same step and fit() throw Preempted.
  bool save_before_preemption = false;
  // Asked before every step: returns whether there is another sign of a preemption. It has to be quick, and thread-safe
  // if workers are threads.
  std::function<bool()> preempted = {};
  // With true, each worker writes the tensors that it has, and reads what it needs: no worker gathers parameters or
  // slots that the replicas share or that are cut. The directory has to be on a file system that all workers reach.
  bool sharded = false;
};
// Makes a run that was interrupted go on where its last backup was, bit for bit, also in the middle of an epoch. A
// backup has the weights, the optimizer, the learning rate, the random states, the position of the input, the metrics
// so far, the states of the callbacks and whether one of them has stopped the training. The two latest backups are kept
// in case one is damaged. With another number of workers or replicas the epoch is begun anew, because the input is
// divided differently. The chief writes and reads, unless it is sharded. FailedPrecondition: a worker does not see the
// directory of sharded backups.
CallbackPtr BackupAndRestore(const BackupAndRestoreOptions& options);

struct ModelCheckpointOptions {
  // A name with places for the epoch (from 1) and the logs: "run/{epoch:02d}-{val_loss:.2f}.safetensors". With weights
  // only it is a file, of Keras if it ends in ".weights.h5". Otherwise it is a checkpoint's folder (read_checkpoint),
  // or a model in Keras' format if it ends in ".keras".
  std::string filepath;
  std::string monitor = "val_loss";       // the log to watch, for save_best_only
  bool save_best_only = false;            // save only when the monitored number has improved
  bool save_weights_only = false;         // save the weights alone, in one file; else everything that a restart needs
  MonitorMode mode = MonitorMode::kAuto;  // tells which of two values is better
  int64_t save_freq = 0;                  // batches between two, over the epochs; 0: at the end of every epoch
  std::optional<double> initial_value_threshold = std::nullopt;  // a number that the first one has to improve upon
  bool verbose = false;                                          // logs the name of each file
};
// Saves the model while it trains (Keras' ModelCheckpoint). InvalidArgument: filepath is empty, or has a place that
// nothing fills, or ends in ".keras" or ".h5" where save_weights_only says otherwise; save_best_only with a save_freq
// monitors a log that is not there within an epoch, such as "val_loss".
CallbackPtr ModelCheckpoint(const ModelCheckpointOptions& options);

// Appends a line of metrics (append_metrics) for every epoch of training and every evaluation.
CallbackPtr MetricsWriter(std::filesystem::path file);

}  // namespace cohort
