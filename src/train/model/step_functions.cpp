#include "train/model/step_functions.h"

#include "base/access.h"
#include "base/extension.h"
#include "base/fail.h"
#include "strategy/core.h"
#include "train/model/model_state.h"

namespace cohort {

std::optional<StepFunctions> make_step_functions(const Strategy& strategy, const std::string& speaker,
                                                 bool jit_compile) {
  const bool records = Access::core(strategy)->joins();
  if (!records && !jit_compile) return std::nullopt;
  if (!jit_compile && extensions<StepFunctionsMaker>().empty()) return std::nullopt;
  const auto& maker = extension_of<StepFunctionsMaker>("function", speaker + "compile: jit_compile is true");
  return maker.make(strategy, speaker, records);
}

// Returns nothing where the step is none of the functions, or cannot be recorded.
std::optional<PerReplica<NamedTensors>> ModelState::run_function(StepKind kind, const GlobalBatch& batch,
                                                                 const StepFunctions::Body& body) {
  if (!functions_->takes(kind, batch)) return std::nullopt;
  if (kind != StepKind::kPredict) {
    loss_metric_.prepare();
    for (MirroredMetric& each : output_losses_) each.prepare();
    for (Measured& each : metrics_) each.metric.prepare();
  }
  const std::shared_ptr<const void> more = kind == StepKind::kTrain ? after_update_.token : nullptr;
  std::optional<PerReplica<NamedTensors>> results = functions_->run(kind, batch, body, more);
  if (results) return results;
  // A recording that was given up may have come as far as to gradients.
  for (const auto& copy : module_.copies()) {
    for (torch::Tensor& parameter : copy->parameters()) parameter.mutable_grad() = torch::Tensor();
  }
  return std::nullopt;
}

}  // namespace cohort
