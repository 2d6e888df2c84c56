// From flags to a strategy, as the Model Garden's get_distribution_strategy: for programs that take the strategy from
// their command line. `cohort train` and train_main() (cohort/models/experiment.h) do it by themselves.
//
//   StrategyFlags flags{.distribution_strategy = "mirrored", .num_replicas = 2};
//   const Strategy strategy = make_strategy(flags);
#pragma once

#include <cstdint>
#include <string>

#include "cohort/models/config.h"
#include "cohort/strategy.h"

namespace cohort {

// A strategy by flags, for programs that take it from their command line or configuration.
struct StrategyFlags {
  // off, one_device, mirrored, multi_worker_mirrored, parameter_server, central_storage or tpu.
  Setting<std::string> distribution_strategy = "mirrored";
  Setting<int64_t> num_gpus = 0;        // 0: the CPU
  Setting<int64_t> num_replicas = 0;    // on the CPU; 0: one
  Setting<std::string> all_reduce_alg;  // of mirrored and multi_worker_mirrored; empty: auto
  Setting<int64_t> num_packs = 1;       // messages that the gradients are packed into; 0: no packing
  Setting<std::string> worker_hosts;    // of multi_worker_mirrored, host:port,host:port; empty: the environment says
  Setting<int64_t> task_index = -1;     // which of the worker_hosts this process is
  Setting<std::string> tpu;             // a name, an address, local, or empty
  Setting<std::string> consistency = "asynchronous";  // of parameter_server: or bounded_staleness or synchronous
  Setting<int64_t> staleness = 4;                     // of bounded_staleness
  Setting<int64_t> ps_replicas = 1;                   // of parameter_server: servers that have each variable

  // The same names, as fields of a configuration.
  void describe(ConfigFields& fields);
};

// InvalidArgument: a combination without a meaning, by the names of the flags and what they were. Unimplemented: a TPU.
Strategy make_strategy(const StrategyFlags& flags);

// Whether the environment's cluster has this process as its evaluator, which has no part in the strategy.
bool is_evaluator(const StrategyFlags& flags);

}  // namespace cohort
