// The table of all strategies by name. It is the only list of them: flags, the help and the errors that name them, and
// the equivalence tests read it. Wings add their rows and flags by extensions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cohort/models/strategy_flags.h"

namespace cohort {

inline constexpr int64_t kMostReplicas = 1024;  // of a process, because each has a thread and a model

// The things that a strategy takes to train.
enum class StrategyTakes {
  kOneReplica,  // one replica of this process
  kReplicas,    // any number of replicas of this process
  kCluster,     // the other tasks of a cluster
  kPlugin,      // devices of an XLA plugin
};

// An extension.
struct StrategyRow {
  const char* name;
  const char* wing = nullptr;  // in the core's table: the wing whose row of this name stands here
  Strategy (*make)(const StrategyFlags& flags) = nullptr;
  StrategyTakes takes = StrategyTakes::kReplicas;
  bool exchanges = false;     // takes --num_packs, --gradient_compression and --all_reduce_alg
  bool shards = false;        // takes --sharding_stage
  bool meshes = false;        // takes --mesh
  bool divides = false;       // takes task.train_input_partition_dims and task.eval_input_partition_dims
  bool joins_others = false;  // trains with the other processes that the environment names
  bool takes_hosts = false;   // takes --worker_hosts and --task_index
};

// The places in the list of flags where wings have theirs.
enum class FlagPlace {
  kExchange,  // behind those of the exchange
  kLayout,    // behind those of the replicas
  kDevices,   // behind those of the workers
  kLast,
};

// The flags of a wing, which are fields of StrategyFlags. An extension.
struct FlagsOfWing {
  FlagPlace place;
  void (*describe)(StrategyFlags& flags, ConfigFields& fields);
  // Fails if a flag is set that the strategy does not take.
  void (*check)(const StrategyFlags& flags, const StrategyRow& row);
};

// Returns a name of a strategy, or of what else the flags name, as the tables have it.
std::string lower(std::string text);

// Returns the rows of the strategies that this build has.
std::span<const StrategyRow> strategy_table();

}  // namespace cohort
