// Combinations: the features that a strategy, a model and their steps may have beside each other, and the pairs that
// are refused, each with its sentence. This table alone decides; docs/parallelism.md prints it.
#pragma once

#include <string>
#include <string_view>

#include "strategy/core.h"

namespace cohort {

// A feature, by its name in the table, and how a user has asked for it ("sharding.stage is 2").
struct AskedFor {
  std::string_view feature;
  std::string said;
};

// The names of features that callers ask for themselves, because a plan does not say all of them.
inline constexpr std::string_view kModelAxis = "tensor parallelism (model)";
inline constexpr std::string_view kModelOfWorkers = "tensor parallelism over workers";
inline constexpr std::string_view kInputAxis = "inputs in parts (space, sequence)";
inline constexpr std::string_view kPipeline = "pipeline (stage)";
inline constexpr std::string_view kStagesOfWorkers = "pipeline over workers";
inline constexpr std::string_view kSharedSlots = "sharded states, stage 1";
inline constexpr std::string_view kSharedParameters = "sharded states, stage 3";
inline constexpr std::string_view kXlaDevices = "XLA devices";
inline constexpr std::string_view kCentral = "central storage";
inline constexpr std::string_view kServers = "parameter servers";
inline constexpr std::string_view kSynchronousServers = "parameter servers, synchronous";
inline constexpr std::string_view kServerTables = "tables on parameter servers";
inline constexpr std::string_view kGraphs = "steps as graphs (jit_compile)";
inline constexpr std::string_view kRecomputed = "recomputed blocks (remat, Checkpointed)";
inline constexpr std::string_view kScriptModules = "modules from Python";
inline constexpr std::string_view kTrainerEma = "averages of the trainer (ema)";
inline constexpr std::string_view kTrainingStages = "stages of a training";
inline constexpr std::string_view kLossScale = "loss_scale";
inline constexpr std::string_view kAccumulation = "gradient_accumulation_steps";
inline constexpr std::string_view kOffloaded = "states in the host's memory";
inline constexpr std::string_view kConstraints = "constraints of parameters";
inline constexpr std::string_view kWholeStepLosses = "losses that need all examples of a step";

// Unimplemented: the plan has two features that do not go together. InvalidArgument: together they would mean nothing.
void require_combination(const StrategyPlan& plan);
// The same for two features of which one may not be seen in a plan yet. Does nothing where they go together.
void require_pair(std::string_view speaker, const AskedFor& first, const AskedFor& second);

// The same for a feature and all those of a plan.
void require_pairs(std::string_view speaker, const AskedFor& feature, const StrategyPlan& plan);

// Returns the refused pairs as a table of Markdown.
std::string combinations_table();

}  // namespace cohort
