// Gives the core what this wing has.
#include <memory>

#include "base/extension.h"
#include "models/zoo/pipeline_cut.h"
#include "wings/pipeline/models/cut_by_costs.h"
#include "wings/pipeline/models/pipeline_flags.h"
#include "wings/pipeline/models/pipeline_timeline.h"
#include "wings/pipeline/step/pipeline_step.h"
#include "wings/pipeline/train/pipeline_cut.h"

namespace cohort {

void install_pipeline() {
  extend(MakeStepInParts{[] { return std::unique_ptr<StepInParts>(std::make_unique<PipelineStep>()); }});
  extend(pipeline_flags());
  extend(make_stages());
  extend(timeline_of_pipelines());
  extend(ModelCutter{cut_for_pipeline});
  extend(layouts::CutByCosts{.cut = cut_by_costs});
}

}  // namespace cohort
