// What this wing gives the core.
#include <memory>

#include "base/extension.h"
#include "wings/pipeline/step/pipeline_step.h"

namespace cohort {

void install_pipeline() {
  extend(MakeStepInParts{[] { return std::unique_ptr<StepInParts>(std::make_unique<PipelineStep>()); }});
}

}  // namespace cohort
