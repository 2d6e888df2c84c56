// The flags that choose a strategy, shared by all commands that compute.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cohort/strategy.h"

namespace cohort::cli {

struct StrategyFlags {
  std::string distribution_strategy = "mirrored";
  int num_gpus = 0;
  int num_replicas = 0;
  std::string all_reduce_alg;
  int num_packs = 1;
  std::string worker_hosts;
  int task_index = -1;
  std::string consistency = "asynchronous";
  int64_t staleness = 4;
  int ps_replicas = 1;
};

void add_strategy_flags(CLI::App& app, StrategyFlags& flags);

// Whether the environment's cluster has this process as its evaluator, which trains nothing.
bool is_evaluator(const StrategyFlags& flags);

// Every wrong combination: InvalidArgument that names the flags and what they were.
Strategy make_strategy(const StrategyFlags& flags);

}  // namespace cohort::cli
