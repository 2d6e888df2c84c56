// Experiments: typed configurations with a task, which `cohort train --experiment=NAME` trains. Names and defaults are
// those of TensorFlow's Model Garden (official/core/config_definitions.py, official/modeling/optimization), as far as
// they have a meaning here; its switches of TensorFlow's machinery are accepted with their defaults only.
//
// An experiment of your own is a factory, registered before the command line is read:
//
//   register_experiment({.name = "my_net", .description = "...", .make = [] {
//     auto task = std::make_shared<ImageClassificationTask>();
//     task->model.num_classes = 5;
//     ExperimentConfig config{.task = task};
//     config.trainer.train_epochs = 10;
//     return config;
//   }});
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/models/config.h"
#include "cohort/models/strategy_flags.h"
#include "cohort/train/actions.h"
#include "cohort/train/model.h"
#include "cohort/train/model_trainer.h"

namespace cohort {

// The runtime of an experiment: the strategy's flags, precision, seed.
struct RuntimeConfig : StrategyFlags {
  Setting<std::string> mixed_precision_dtype;
  Setting<std::string> loss_scale;
  Setting<std::string> tensor_float_32;  // "true", "false", or empty: as LibTorch has it
  Setting<std::string> cudnn_benchmark;  // "true", "false", or empty: while inputs have few shapes
  Setting<bool> cudnn_enabled = true;
  Setting<bool> deterministic = false;
  Setting<int64_t> dataset_num_private_threads = 0;
  Setting<int64_t> seed = 1;
  Setting<bool> enable_xla = false;
  Setting<bool> run_eagerly = false;
  Setting<bool> use_cuda_graph = false;
  // Model Garden's switches for TensorFlow, accepted with these values only.
  Setting<std::string> gpu_thread_mode;
  Setting<int64_t> per_gpu_thread_count = 0;
  Setting<bool> batchnorm_spatial_persistent = false;
  Setting<std::string> tpu_enable_xla_dynamic_padder;
  Setting<int64_t> num_cores_per_replica = 1;
  Setting<int64_t> default_shard_dim = -1;
  Setting<bool> use_tpu_mp_strategy = false;

  // Adds the fields with their meanings.
  void describe(ConfigFields& fields);
};

// The optimizer of an experiment: a rule, a schedule of the rate, a warmup, averages of the weights.
struct OptimizerConfig {
  // Clipping of the gradient, at most one of the three; 0: off.
  struct Clips {
    Setting<double> clipnorm = 0.0, clipvalue = 0.0, global_clipnorm = 0.0;
    // Adds the fields with their meanings.
    void describe(ConfigFields& fields);
  };
  // The options that Adam and its relatives have.
  struct Moments : Clips {
    Setting<double> beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7, weight_decay = 0.0;
    // Adds the fields with their meanings.
    void describe(ConfigFields& fields);
  };

  // The update rule: `type` chooses one, and only the group of that name counts. Names and defaults are Model Garden's
  // where it has the rule, else Keras'.
  struct Rule : Clips {
    Setting<std::string> type = "sgd";
    Setting<std::string> formulation = "model_garden";
    Setting<std::vector<std::string>> exclude_from_weight_decay;
    // The group "sgd".
    struct Sgd : Clips {
      Setting<double> momentum = 0.0, decay = 0.0, dampening = 0.0, weight_decay = 0.0;
      Setting<bool> nesterov = false;
    } sgd;  // where type is sgd
    // The group "sgd_experimental".
    struct SgdExperimental : Clips {
      Setting<double> momentum = 0.0, weight_decay = 0.0;
      Setting<bool> nesterov = false;
    } sgd_experimental;  // where type is sgd_experimental
    // The groups "adam" and "adam_experimental".
    struct Adam : Moments {
      Setting<bool> amsgrad = false;
    } adam;                  // where type is adam
    Adam adam_experimental;  // where type is adam_experimental
    // The group "adamw".
    struct Adamw : Moments {
      Setting<bool> amsgrad = false;
      // Model Garden's names: of weight_decay, where it is not negative; of the parameters that alone decay; of those
      // that do not.
      Setting<double> weight_decay_rate = -1.0;
      // The norm to which all gradients together are clipped, as global_clipnorm; Model Garden's name.
      Setting<double> gradient_clip_norm = 1.0;
      Setting<std::string> include_in_weight_decay;
      Setting<std::vector<std::string>> exclude_from_weight_decay;
    } adamw;  // where type is adamw
    // The group "adamw_experimental".
    struct AdamWExperimental : Moments {
      Setting<bool> amsgrad = false;
      AdamWExperimental() { global_clipnorm = 1.0; }
    } adamw_experimental;  // where type is adamw_experimental
    // The group "rmsprop".
    struct Rmsprop : Clips {
      Setting<double> rho = 0.9, momentum = 0.0, epsilon = 1e-7, weight_decay = 0.0;
      Setting<bool> centered = false;
    } rmsprop;  // where type is rmsprop
    // The group "adagrad".
    struct Adagrad : Clips {
      Setting<double> initial_accumulator_value = 0.1, epsilon = 1e-7, lr_decay = 0.0, weight_decay = 0.0;
    } adagrad;  // where type is adagrad
    // The group "adadelta".
    struct Adadelta : Clips {
      Setting<double> rho = 0.95, epsilon = 1e-7, weight_decay = 0.0;
    } adadelta;      // where type is adadelta
    Moments adamax;  // where type is adamax
    Moments nadam;   // where type is nadam
    // The group "ftrl".
    struct Ftrl : Clips {
      Setting<double> learning_rate_power = -0.5, initial_accumulator_value = 0.1, l1_regularization_strength = 0.0;
      Setting<double> l2_regularization_strength = 0.0, l2_shrinkage_regularization_strength = 0.0, beta = 0.0;
      Setting<double> weight_decay = 0.0;
    } ftrl;  // where type is ftrl
    // The group "lion".
    struct Lion : Clips {
      Setting<double> beta_1 = 0.9, beta_2 = 0.99, weight_decay = 0.0;
    } lion;  // where type is lion
    // The group "adafactor".
    struct Adafactor : Clips {
      Setting<double> beta_2_decay = -0.8, epsilon_1 = 1e-30, epsilon_2 = 1e-3, clip_threshold = 1.0;
      Setting<double> weight_decay = 0.0;
    } adafactor;  // where type is adafactor
    // The group "lamb".
    struct Lamb : Moments {
      Setting<double> weight_decay_rate = -1.0;
      Setting<std::vector<std::string>> exclude_from_weight_decay, exclude_from_layer_adaptation;
      Lamb() { epsilon = 1e-6; }
    } lamb;  // where type is lamb
    // The group "lars".
    struct Lars : Clips {
      Setting<double> momentum = 0.9, eeta = 1e-3, epsilon = 1e-8, weight_decay_rate = 0.0;
      Setting<bool> nesterov = false, classic_momentum = true;
      Setting<std::vector<std::string>> exclude_from_weight_decay, exclude_from_layer_adaptation;
    } lars;  // where type is lars

    // Adds the fields with their meanings.
    void describe(ConfigFields& fields);

   private:
    void describe_newer(ConfigFields& fields);
    void describe_layerwise(ConfigFields& fields);
  } optimizer;  // the rule

  // The learning rate: a schedule by its type, of which only its own group counts. An offset is the step from which it
  // counts.
  struct Rate {
    Setting<std::string> type = "constant";
    struct {
      Setting<double> learning_rate = 0.1;
    } constant;  // where type is constant
    // The groups "stepwise" and "step_cosine_with_offset".
    struct Steps {
      Setting<std::vector<int64_t>> boundaries;
      Setting<std::vector<double>> values;
      Setting<int64_t> offset = 0;
    };
    Steps stepwise;                 // where type is stepwise
    Steps step_cosine_with_offset;  // where type is step_cosine_with_offset
    struct {
      Setting<double> initial_learning_rate = 0.1, decay_rate = 0.96;
      Setting<int64_t> decay_steps = 0, offset = 0;
      Setting<bool> staircase = false;
    } exponential;  // where type is exponential
    struct {
      Setting<double> initial_learning_rate = 0.1, end_learning_rate = 1e-4, power = 1.0;
      Setting<int64_t> decay_steps = 0, offset = 0;
      Setting<bool> cycle = false;
    } polynomial;  // where type is polynomial
    struct {
      Setting<double> initial_learning_rate = 0.1, alpha = 0.0;
      Setting<int64_t> decay_steps = 0, offset = 0;
    } cosine;  // where type is cosine
    struct {
      Setting<double> initial_learning_rate = 0.1, power = -0.5;
    } power;  // where type is power
    struct {
      Setting<double> initial_learning_rate = 0.1, power = -0.5, linear_decay_fraction = 0.1;
      Setting<int64_t> total_decay_steps = 0, offset = 0;
    } power_linear;  // where type is power_linear
    struct {
      Setting<double> initial_learning_rate = 0.1, power = -0.5, pre_offset_learning_rate = 1e6;
      Setting<int64_t> offset = 0;
    } power_with_offset;  // where type is power_with_offset

    // Adds the fields with their meanings.
    void describe(ConfigFields& fields);

   private:
    void describe_powers(ConfigFields& fields);
  } learning_rate;  // the learning rate

  // The beginning of the rate; without a type it is as the schedule says.
  struct Warmup {
    Setting<std::string> type;
    struct {
      Setting<int64_t> warmup_steps = 0;
      Setting<double> warmup_learning_rate = 0.0;
    } linear;  // where type is linear
    struct {
      Setting<int64_t> warmup_steps = 0;
      Setting<double> power = 1.0;
    } polynomial;  // where type is polynomial

    // Adds the fields with their meanings.
    void describe(ConfigFields& fields);
  } warmup;  // the beginning of the rate

  struct {
    Setting<double> average_decay = MovingAverageOptions().average_decay;
    Setting<int64_t> start_step = MovingAverageOptions().start_step;
    Setting<bool> dynamic_decay = MovingAverageOptions().dynamic_decay;
    Setting<bool> trainable_weights_only = MovingAverageOptions().trainable_weights_only;
  } ema;  // averages of the weights
  Setting<bool> scale_by_replicas = false;
  Setting<int64_t> accumulate_steps = 1;

  // Adds the fields with their meanings.
  void describe(ConfigFields& fields);

  // Makes the optimizer for a run of so many steps on so many replicas. The schedule is of the global step, of which
  // `begin` is where the optimizer starts. `l2` is the gradient's share of the weights, as of a loss to which l2 / 2
  // times the sum of their squares is added; the gradients are clipped before, and where exclude_from_weight_decay says
  // nothing, biases and the scales and shifts of norms have no part in it.
  Optimizer build(int64_t train_steps, int replicas, int64_t begin = 0, double l2 = 0.0) const;
  // Returns the averages of the weights that `ema` asks for.
  MovingAverageOptions averages() const;
};

// The length of a training, and what it writes on the way.
struct TrainerConfig {
  OptimizerConfig optimizer_config;  // the optimizer and its rate
  Setting<int64_t> train_steps = 0;
  Setting<double> train_epochs = 0.0;
  Setting<int64_t> steps_per_loop = 1000;
  Setting<int64_t> summary_interval = 1000;
  Setting<int64_t> checkpoint_interval = 1000;
  Setting<int64_t> max_to_keep = ControllerOptions().max_to_keep;
  Setting<bool> sharded_checkpoints = ControllerOptions().sharded_checkpoints;
  Setting<int64_t> validation_steps = -1;
  Setting<int64_t> validation_interval = 1000;
  Setting<int64_t> continuous_eval_timeout = 3600;
  Setting<std::string> best_checkpoint_export_subdir;
  Setting<std::string> best_checkpoint_eval_metric;
  Setting<std::string> best_checkpoint_metric_comp = "higher";
  Setting<std::string> validation_summary_subdir = "validation";
  Setting<double> loss_upper_bound = RecoveryOptions().loss_upper_bound;
  Setting<int64_t> recovery_begin_steps = RecoveryOptions().begin_steps;
  Setting<int64_t> recovery_max_trials = RecoveryOptions().max_trials;
  Setting<int64_t> compare_replicas_interval = 1000;
  Setting<bool> preemption_on_demand_checkpoint = true;
  Setting<int64_t> summary_images = 0;
  Setting<bool> summary_histograms = false;
  Setting<bool> train_tf_function = true;
  Setting<bool> eval_tf_function = true;
  // Model Garden's switches for TensorFlow, accepted with these values only.
  Setting<bool> train_tf_while_loop = true;
  Setting<bool> eval_tf_while_loop = false;
  Setting<bool> allow_tpu_summary = false;

  // Adds the fields with their meanings.
  void describe(ConfigFields& fields);
};

// The data of a task.
struct TaskData {
  std::optional<Dataset> train;       // batched, repeated
  std::optional<Dataset> validation;  // batched
  int64_t steps_per_epoch = 0;        // steps of a pass over the training data; 0: not known
  std::string description;            // a name for logs, such as "drawn digits"
  bool shard_train = true;            // each worker reads its part of the training data; else all of it
  bool shard_validation = true;       // each worker reads its part of the validation data; else all of it
};

// What an axis of a mesh divides beside what it always does.
struct MeshCuts {
  bool vocabulary = false;  // --vocab_parallel
  bool mlps = false;        // dense layers that are whole otherwise: --mlp_parallel
};

// A learning task: a model, its data and its loss. Its fields are the group "task" of the configuration.
class Task {
 public:
  virtual ~Task() = default;

  // Adds the fields of the group "task" with their meanings.
  virtual void describe(ConfigFields& fields) = 0;
  // Sets the fields that hold the folder of the data, for --data_dir; by default task.train_data.input_path.
  virtual void set_data(Config& config, const std::string& folder, const std::string& origin);
  // Sets the fields that hold the batch size, for --batch_size; by default global_batch_size of both groups of data.
  virtual void set_batch(Config& config, int64_t size, const std::string& origin);
  // Sets fields that nobody has set to what a file says that another field names; called before the lock.
  virtual void complete(Config& /*config*/) {}
  // Opens the data under the current strategy, for a configuration that is locked. With `training` a training follows;
  // data that do not suffice for it are an error. An evaluation has the configuration of its training, so the settings
  // of both are read. A setting that somebody has set and that build_inputs(), build_model(), add_losses(),
  // l2_weight_decay() and stages() do not read, called once each, is an error; so keep the values that are needed
  // later.
  virtual TaskData build_inputs(const RuntimeConfig& runtime, bool training) = 0;
  // Returns a batch of training with the shapes and dtypes of those of build_inputs(), of the global size, with zeros
  // that may share memory: for programs that are compiled without data. By default an empty one, which is refused.
  virtual Example example_batch() const { return {}; }
  // Returns the parts in which tpu and xla divide an input among the cores of a replica, for each dimension as the
  // model takes it (NCHW), in training or in evaluation. Empty: it is not divided. InvalidArgument names a key whose
  // value makes no sense.
  virtual std::vector<int64_t> input_partition_dims(bool /*training*/) const { return {}; }
  // Returns which parameters of the model an axis of a mesh cuts. By default none, and such a --mesh is refused.
  // InvalidArgument: the model does not have what is to be cut, or a cut would change nothing.
  virtual LayoutMap mesh_layout(const std::string& /*axis*/, const MeshCuts& /*cuts*/) const { return {}; }
  // Returns where a pipeline cuts the model into so many chunks (PipelineOptions::cut). Empty, as by default: a
  // Sequential is cut by the time that its layers take. InvalidArgument: the model does not have so many blocks.
  virtual std::vector<std::string> pipeline_cut(int /*chunks*/) const { return {}; }
  // InvalidArgument: the model has no tokens that an axis of a mesh could divide (--mesh=sequence=2). By default
  // nothing.
  virtual void check_sequence(const std::string& /*axis*/) const {}
  // Makes the model, built (Model::built) but not compiled.
  virtual Model build_model() = 0;
  // Adds the losses and the metrics to the options that the model is compiled with; by default build_loss() and
  // build_metrics(), for a model with one output.
  virtual void add_losses(CompileOptions& options);
  // Makes the loss of the only output; by default none, for a task whose add_losses() has other ones.
  virtual std::optional<Loss> build_loss() { return std::nullopt; }
  // Makes the metrics of the only output; by default none.
  virtual std::vector<Metric> build_metrics() { return {}; }
  // Returns the decay of the weights by the gradient, `l2` of OptimizerConfig::build().
  virtual double l2_weight_decay() const { return 0.0; }
  // Sets the weights to start from; called if there is no checkpoint.
  virtual void initialize(Model& /*model*/) {}

  // Returns the global steps after which the training changes, ascending. before_stage(0) sets up the model at the
  // beginning and before_stage(i) after the i-th of these steps; the model is compiled afterwards. Parameter servers
  // have no stages.
  virtual std::vector<int64_t> stages() const { return {}; }
  // Sets up the model for the stage; see stages().
  virtual void before_stage(std::size_t /*stage*/, Model& /*model*/) {}
};

// The configuration of an experiment.
struct ExperimentConfig {
  std::shared_ptr<Task> task;  // the learning task
  TrainerConfig trainer;       // the length of the training, and what it writes
  RuntimeConfig runtime;       // the runtime

  // Adds the fields of the groups "task", "trainer" and "runtime".
  void describe(ConfigFields& fields);
};

// An experiment by its name.
struct Experiment {
  std::string name;                        // the value of --experiment
  std::string description;                 // a line for the list of experiments
  std::function<ExperimentConfig()> make;  // makes its configuration, with the defaults
};

// Adds an experiment. InvalidArgument: the name is empty or taken. Thread-safe.
void register_experiment(Experiment experiment);
std::vector<Experiment> experiments();              // returns all, the library's own first
Experiment find_experiment(std::string_view name);  // by its name; NotFound lists the experiments that there are

struct RunOptions {
  // train, eval, train_and_eval, train_and_post_eval, continuous_eval, or continuous_train_and_eval (also called
  // train_and_validate), which evaluates every checkpoint that it writes.
  std::string mode = "train_and_eval";
  // Gets checkpoints (ckpt-<step>), summaries (train, validation), metrics.jsonl, params.yaml and model.safetensors.
  std::filesystem::path model_dir;
  std::string experiment;          // the name of the experiment, for what is written
  std::ostream* output = nullptr;  // the stream for the chief's reports; null: standard output
  // Called after inner loops and evaluations; null: nobody.
  std::function<void(const MetricsRecord&)> observe = nullptr;
};

// Runs an experiment, whose configuration is locked, in the mode under the strategy, and returns the last evaluation. A
// run that was interrupted goes on at its latest checkpoint. Under parameter servers all tasks call it, and those that
// are not the chief serve. Preempted: SIGTERM came to a worker; a checkpoint is written.
Logs run_experiment(const ExperimentConfig& experiment, const Config& config, const Strategy& strategy,
                    const RunOptions& options);

// The main function of a program with experiments of its own: does what `cohort train` does, by the same flags, with
// the library's experiments and those that were registered before. Returns the exit status: 0; 2 for a wrong call; 42
// after a preemption (cohort/preemption.h); else 1. Errors are told on standard error.
int train_main(int argc, char** argv);

}  // namespace cohort
