#include "cohort/models/experiment.h"

namespace cohort {

void TrainerConfig::describe(ConfigFields& fields) {
  fields.nest("optimizer_config", optimizer_config);
  fields.add("train_steps", train_steps, "global step to reach; 0: train_epochs decides").flag = "--train_steps";
  fields.add("train_epochs", train_epochs, "passes over the training data, if train_steps is 0").flag = "--epochs";
  const std::string epoch = "; 0: an epoch";
  fields.add("steps_per_loop", steps_per_loop, "steps of an inner loop" + epoch);
  fields.add("summary_interval", summary_interval, "steps between summaries, written between inner loops" + epoch);
  fields
      .add("checkpoint_interval", checkpoint_interval, "steps between checkpoints, written between inner loops" + epoch)
      .flag = "--save_freq";
  fields.add("max_to_keep", max_to_keep, "checkpoints that are kept; 0: all");
  fields
      .add("sharded_checkpoints", sharded_checkpoints,
           "whether each worker writes and reads its own part of the tensors; model_dir is on a file system of all "
           "workers")
      .flag = "--sharded_checkpoints";
  fields.add("validation_steps", validation_steps, "batches of an evaluation; -1: all of the data");
  fields.add("validation_interval", validation_interval, "steps between evaluations" + epoch);
  fields.add("continuous_eval_timeout", continuous_eval_timeout, "seconds that continuous_eval waits for a checkpoint");
  fields.add("best_checkpoint_export_subdir", best_checkpoint_export_subdir,
             "folder in model_dir for the weights of the best evaluation; empty: none");
  fields.add("best_checkpoint_eval_metric", best_checkpoint_eval_metric,
             "log of the evaluation that decides which is the best; empty: none");
  fields.add("best_checkpoint_metric_comp", best_checkpoint_metric_comp, "which of two values of it is better",
             {"higher", "lower"});
  fields.add("validation_summary_subdir", validation_summary_subdir,
             "folder in model_dir for the evaluations' summaries");
  fields.add("loss_upper_bound", loss_upper_bound, "largest loss that is no failure of the training");
  fields.add("recovery_begin_steps", recovery_begin_steps, "step from which the bound holds");
  fields.add("recovery_max_trials", recovery_max_trials,
             "failures after which the latest checkpoint is restored; 0: the first is an error; negative: no check");
  fields
      .add("compare_replicas_interval", compare_replicas_interval,
           "steps between comparisons of the replicas' weights, made between inner loops; 0: none")
      .flag = "--compare_replicas_interval";
  fields.add("preemption_on_demand_checkpoint", preemption_on_demand_checkpoint,
             "whether SIGTERM makes all workers write a checkpoint and leave");
  fields.add("summary_images", summary_images, "training images that are written to the summaries at the beginning");
  fields.add("summary_histograms", summary_histograms, "whether each evaluation writes histograms of all weights");
  const std::string tensorflow = "a switch of TensorFlow's machinery, without a meaning here";
  fields.add("train_tf_while_loop", train_tf_while_loop, tensorflow);
  fields.add("train_tf_function", train_tf_function, "false: the model runs in every step of training");
  fields.add("eval_tf_function", eval_tf_function, "false: the model runs in every step of evaluation");
  fields.add("eval_tf_while_loop", eval_tf_while_loop, tensorflow);
  fields.add("allow_tpu_summary", allow_tpu_summary, tensorflow);
  for (const char* relation :
       {"train_steps >= 0", "train_epochs >= 0", "steps_per_loop >= 0", "summary_interval >= 0",
        "checkpoint_interval >= 0", "max_to_keep >= 0", "validation_steps >= -1", "validation_steps != 0",
        "validation_interval >= 0", "compare_replicas_interval >= 0", "continuous_eval_timeout > 0",
        "continuous_eval_timeout <= 1000000000", "loss_upper_bound > 0", "summary_images >= 0"}) {
    fields.restrict(relation);
  }
}

void ExperimentConfig::describe(ConfigFields& fields) {
  fields.nest("task", *task);
  fields.nest("trainer", trainer);
  fields.nest("runtime", runtime);
}

}  // namespace cohort
