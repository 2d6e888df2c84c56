// A strategy from flags, as Model Garden's get_distribution_strategy makes it: for programs that take the strategy from
// their command line. `cohort train` and train_main() (cohort/models/experiment.h) use it.
//
//   StrategyFlags flags{.distribution_strategy = "mirrored", .num_replicas = 2};
//   const Strategy strategy = make_strategy(flags);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/cluster/consistency.h"
#include "cohort/models/config.h"
#include "cohort/parallel/axes.h"
#include "cohort/strategy.h"

namespace cohort {

// The flags of a strategy, for the command line or configuration of a program. docs/settings.md and `cohort train
// --help` say what each of them means.
struct StrategyFlags {
  Setting<std::string> distribution_strategy = "mirrored";
  Setting<int64_t> num_gpus = 0;
  Setting<int64_t> num_replicas = 0;
  Setting<std::string> all_reduce_alg;
  Setting<std::string> collective_algorithm = "auto";
  Setting<int64_t> num_packs = ExchangeOptions().num_packs;
  Setting<std::string> gradient_compression = ExchangeOptions().gradient_compression;
  Setting<int64_t> power_sgd_rank = PowerSgdOptions().matrix_approximation_rank;
  Setting<int64_t> power_sgd_start_iter = PowerSgdOptions().start_power_sgd_iter;
  Setting<int64_t> local_sgd_every = LocalSgdOptions().sync_every;
  Setting<int64_t> local_sgd_start_iter = LocalSgdOptions().start_iter;
  Setting<double> outer_learning_rate = LocalSgdOptions().outer_learning_rate;
  Setting<double> outer_momentum = LocalSgdOptions().outer_momentum;
  Setting<int64_t> sharding_stage = ShardingOptions().stage;
  Setting<bool> reshard_after_forward = ShardingOptions().reshard_after_forward;
  Setting<int64_t> sharding_min_unit_bytes = ShardingOptions().min_unit_bytes;
  Setting<bool> sharding_offload_states = ShardingOptions().offload_states;
  Setting<std::string> mesh;
  Setting<std::string> sequence_attention = "ring";
  Setting<bool> sequence_parallel = false;
  Setting<bool> vocab_parallel = false;
  Setting<bool> mlp_parallel = false;
  Setting<std::string> pipeline_schedule = "1f1b";
  Setting<int64_t> pipeline_microbatches = 8;
  Setting<std::string> worker_hosts;
  Setting<int64_t> task_index = -1;
  Setting<std::string> tpu;
  Setting<std::string> xla_plugin;
  Setting<std::string> xla_options;
  Setting<std::string> matmul_precision = "default";
  Setting<std::string> consistency = "asynchronous";
  Setting<int64_t> staleness = Consistency().staleness;
  Setting<int64_t> ps_replicas = 1;
  Setting<std::string> secret_file;
  Setting<std::string> tls_ca;
  Setting<std::string> tls_cert;
  Setting<std::string> tls_key;
  Setting<bool> insecure = false;
  Setting<std::string> coordination;
  // How tpu and xla divide the inputs of a model among the cores of a replica, and mirrored among its devices, for
  // images NCHW; each of num_replicas has as many of them as there are parts. The task of an experiment says it
  // (Task::input_partition_dims), so they are no fields.
  std::vector<int64_t> input_partition_dims = {};
  std::vector<int64_t> eval_input_partition_dims = {};  // for evaluation and prediction; empty: the same

  // The layout of the parameters under `mesh`, where an axis divides them. The task of an experiment says it
  // (Task::mesh_layout), so it is no field.
  LayoutMap layout = {};
  // Where the model is cut under `mesh`, where an axis divides the layers: Task::pipeline_cut.
  std::vector<std::string> cut = {};
  int stages = 1;  // the stages of a line under `mesh`

  // Adds the fields with their meanings and flags.
  void describe(ConfigFields& fields);
};

// Makes the strategy. InvalidArgument names flags that have no meaning together, and their values. Unimplemented: a
// TPU of another machine.
Strategy make_strategy(const StrategyFlags& flags);

// Returns whether this process is the evaluator of the environment's cluster, which has no part in the strategy.
bool is_evaluator(const StrategyFlags& flags);

}  // namespace cohort
