#include "strategy/combinations.h"

#include <array>
#include <vector>

#include "base/fail.h"
#include "collective/gradient_wire.h"
#include "device/backend.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

// Returns how the axes of a role are named; empty: there is none.
std::string axes_of(const StrategyPlan& plan, AxisRole role, std::string_view does) {
  for (const Axis& axis : plan.topology.axes()) {
    if (axis.role == role) return c10::str("the axis \"", axis.name, "\" ", does);
  }
  return "";
}

std::string says_model(const StrategyPlan& plan) {
  return axes_of(plan, AxisRole::kModel, "divides parameters");
}

std::string says_inputs(const StrategyPlan& plan) {
  return axes_of(plan, AxisRole::kSpace, "divides inputs");
}

std::string says_pipeline(const StrategyPlan& plan) {
  return plan.in_microbatches ? "the stages of a pipeline take microbatches" : "";
}

// The stages of a replica lie with several workers.
std::string says_stages(const StrategyPlan& plan) {
  return axes_of(plan, AxisRole::kStage, "has stages on several workers");
}

std::string says_slots(const StrategyPlan& plan) {
  return plan.sharding.stage == 1 ? "sharding.stage is 1" : "";
}

std::string says_gradients(const StrategyPlan& plan) {
  return plan.sharding.stage > 1 ? c10::str("sharding.stage is ", plan.sharding.stage) : "";
}

std::string says_power_sgd(const StrategyPlan& plan) {
  const std::string& compression = plan.exchange.gradient_compression;
  return GradientWire(compression).has_hook() ? "gradient_compression is " + compression : "";
}

std::string says_local_sgd(const StrategyPlan& plan) {
  return plan.local_sgd.sync_every > 0 ? c10::str("local_sgd.sync_every is ", plan.local_sgd.sync_every) : "";
}

std::string says_xla(const StrategyPlan& plan) {
  for (const LogicalDevice& device : plan.devices) {
    if (backend_of(device.torch_device).records()) return device.name() + " is a device of XLA";
  }
  return "";
}

// The processes of a pod record for each other.
std::string says_workers(const StrategyPlan& plan) {
  const bool others = plan.workers->path_in_place() == GradientPath::kOverWorkers && !plan.records_with_others;
  return others ? "there are other workers" : "";
}

struct Feature {
  std::string_view name;
  std::string (*said)(const StrategyPlan& plan);  // how a plan has it; empty: not
};

constexpr std::string_view kSharedGradients = "sharded states, stages 2 and 3";
constexpr std::string_view kPowerSgd = "PowerSGD";
constexpr std::string_view kLocalSgd = "local SGD";
constexpr std::string_view kWorkers = "several workers";

constexpr std::array kFeatures = {
    Feature{kModelAxis, says_model},    Feature{kInputAxis, says_inputs},
    Feature{kPipeline, says_pipeline},  Feature{kStagesOfWorkers, says_stages},
    Feature{kSharedSlots, says_slots},  Feature{kSharedGradients, says_gradients},
    Feature{kPowerSgd, says_power_sgd}, Feature{kLocalSgd, says_local_sgd},
    Feature{kXlaDevices, says_xla},     Feature{kWorkers, says_workers},
};

// Nobody has built it, or there is nothing that it could mean.
enum class Refusal { kNotBuilt, kNoMeaning };

struct RefusedPair {
  std::string_view first;
  std::string_view second;
  std::string_view why;
  Refusal refusal = Refusal::kNotBuilt;
};

constexpr std::string_view kWholeAverages =
    "these averages are copies of whole parameters; those of the optimizer's use_ema lie where the parameters do";

constexpr std::array kRefused = {
    RefusedPair{kModelAxis, kInputAxis, "a replica has a part of the parameters or a part of each input, not both"},
    RefusedPair{kModelOfWorkers, kStagesOfWorkers, "beside stages the axis lies within each worker"},
    RefusedPair{kModelAxis, kPowerSgd,
                "PowerSGD approximates whole parameters; bfloat16 and float16 compress the gradients of parts"},
    RefusedPair{kModelAxis, kXlaDevices,
                "replicas that compute an example together run on CPUs and GPUs; TPUStrategy divides inputs"},
    RefusedPair{kInputAxis, kPipeline, "the stages of a pipeline take whole examples; use one of the two axes"},
    RefusedPair{kInputAxis, kXlaDevices,
                "replicas that compute an example together run on CPUs and GPUs; TPUStrategy divides inputs"},
    RefusedPair{kPipeline, kSharedGradients,
                "a pipeline keeps gradients over its microbatches; stage 1 shares the slots of one process"},
    RefusedPair{kPipeline, kXlaDevices, "the stages of a pipeline run on CPUs and GPUs"},
    RefusedPair{kStagesOfWorkers, kSharedSlots, "each worker has the slots of its stages alone already"},
    RefusedPair{kSharedSlots, kPowerSgd, "owners take sums of slices; bfloat16 and float16 go with it",
                Refusal::kNoMeaning},
    RefusedPair{kSharedGradients, kPowerSgd, "owners take sums of slices; bfloat16 and float16 go with it",
                Refusal::kNoMeaning},
    RefusedPair{kSharedSlots, kLocalSgd, "workers that share states exchange gradients in every step",
                Refusal::kNoMeaning},
    RefusedPair{kSharedGradients, kLocalSgd, "workers that share states exchange gradients in every step",
                Refusal::kNoMeaning},
    RefusedPair{kPowerSgd, kLocalSgd,
                "PowerSGD is for gradients; bfloat16 and float16 are for what parameters have moved, too",
                Refusal::kNoMeaning},
    RefusedPair{kSharedSlots, kXlaDevices, "each of these devices has all states, since its work is recorded"},
    RefusedPair{kSharedGradients, kXlaDevices, "each of these devices has all states, since its work is recorded"},
    RefusedPair{kCentral, kXlaDevices,
                "each of these devices has a copy of every variable; use XlaStrategy or TPUStrategy"},
    RefusedPair{kXlaDevices, kWorkers, "devices of XLA train with those of other processes under TPUStrategy alone"},
    RefusedPair{kPipeline, kRecomputed,
                "a pipeline computes no block again; its schedule bounds the microbatches that a stage keeps"},
    RefusedPair{kXlaDevices, kRecomputed, "the compiler decides what is computed again; leave the block as it is"},
    RefusedPair{kPipeline, kGraphs, "the stages of a pipeline are not captured; leave jit_compile unset"},
    RefusedPair{kServers, kGraphs, "the steps of parameter servers are not captured; leave jit_compile unset"},
    RefusedPair{kModelOfWorkers, kTrainerEma, kWholeAverages},
    RefusedPair{kStagesOfWorkers, kTrainerEma, kWholeAverages},
    RefusedPair{kSharedParameters, kTrainerEma, kWholeAverages},
    RefusedPair{kSharedParameters, kScriptModules,
                "their compiled parts do not gather the parameters that replicas share; use stage 2"},
    RefusedPair{kServers, kTrainingStages, "the variables of parameter servers are made before the first step"},
    RefusedPair{kServers, kLossScale, "parameter servers leave no step out"},
    RefusedPair{kServerTables, kAccumulation, "the gradients of rows go to the servers with each step"},
    RefusedPair{kModelAxis, kConstraints, "norms are those of whole parameters, of which a replica has a part"},
    RefusedPair{kPipeline, kConstraints, "the stages of a pipeline update the parameters in a step of their own"},
    RefusedPair{kSharedParameters, kConstraints, "norms are those of whole parameters; use stage 2"},
    RefusedPair{kOffloaded, kConstraints, "the host updates the parameters; leave offload_states unset"},
    RefusedPair{kLocalSgd, kConstraints, "the means of the workers' parameters need not keep to them",
                Refusal::kNoMeaning},
    RefusedPair{kXlaDevices, kConstraints, "the update is the end of a recorded step"},
    RefusedPair{kCentral, kConstraints, "one replica updates for all; use MirroredStrategy"},
    RefusedPair{kGraphs, kConstraints, "the update is the end of a captured step; leave jit_compile unset"},
    RefusedPair{kSynchronousServers, kWholeStepLosses, "each worker has a share of the examples of a step only"},
};

const RefusedPair* find_refused(std::string_view first, std::string_view second) {
  for (const RefusedPair& pair : kRefused) {
    if ((pair.first == first && pair.second == second) || (pair.first == second && pair.second == first)) return &pair;
  }
  return nullptr;
}

}  // namespace

void require_pair(std::string_view speaker, const AskedFor& first, const AskedFor& second) {
  const RefusedPair* const refused = find_refused(first.feature, second.feature);
  if (refused == nullptr) return;
  const std::string text =
      c10::str(speaker, " ", first.said, " and ", second.said, ", which do not go together: ", refused->why);
  if (refused->refusal == Refusal::kNoMeaning) fail<InvalidArgument>(text);
  fail<Unimplemented>(text);
}

void require_pairs(std::string_view speaker, const AskedFor& feature, const StrategyPlan& plan) {
  for (const Feature& each : kFeatures) {
    const std::string said = each.said(plan);
    if (!said.empty()) require_pair(speaker, feature, {.feature = each.name, .said = said});
  }
}

void require_combination(const StrategyPlan& plan) {
  std::vector<AskedFor> asked;
  for (const Feature& feature : kFeatures) {
    AskedFor next{.feature = feature.name, .said = feature.said(plan)};
    if (next.said.empty()) continue;
    for (const AskedFor& other : asked) require_pair("[strategy] " + plan.name + ":", other, next);
    asked.push_back(std::move(next));
  }
}

std::string combinations_table() {
  std::string text = "| this | and this | do not go together, because |\n|---|---|---|\n";
  for (const RefusedPair& pair : kRefused)
    text += c10::str("| ", pair.first, " | ", pair.second, " | ", pair.why, " |\n");
  return text;
}

}  // namespace cohort
