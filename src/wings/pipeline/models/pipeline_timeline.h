// The last step of a pipeline in a trace, for timeline.json and cohort report.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "cohort/parallel/pipeline_schedule.h"
#include "cohort/trace.h"

namespace cohort {

// Returns what each stage of this process did in the step that a trace has a close-up of, what the schedule has all
// stages do with the mean times of these actions, and for how much of the time stages had no work in both; nothing
// where no step of a pipeline was traced.
std::optional<nlohmann::ordered_json> pipeline_timeline(const TraceSummary& summary,
                                                        const PipelineScheduleOptions& options, int stages);

}  // namespace cohort
