// TimelinePart: what a wing adds to the report of a traced run. An extension.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>

#include "cohort/models/strategy_flags.h"
#include "cohort/trace.h"

namespace cohort {

struct TimelinePart {
  const char* close_up;  // the name of the spans that it needs: TraceOptions::close_up
  // Adds to timeline.json, and tells the reader, if the trace has such a span.
  void (*add)(const TraceSummary& summary, const StrategyFlags& flags, nlohmann::ordered_json& timeline,
              std::ostream& out);
};

}  // namespace cohort
