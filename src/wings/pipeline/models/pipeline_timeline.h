// The last step of a pipeline in a trace, for timeline.json and cohort report.
#pragma once

#include "models/command/timeline_part.h"

namespace cohort {

TimelinePart timeline_of_pipelines();

}  // namespace cohort
