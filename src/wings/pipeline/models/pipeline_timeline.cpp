#include "wings/pipeline/models/pipeline_timeline.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "wings/pipeline/models/pipeline_flags.h"
#include "wings/pipeline/strategy/pipeline.h"

namespace cohort {

namespace {

constexpr std::array<const char*, 3> kActions = {"forward", "backward", "weight"};  // as PipelineOp has them

// An action of a stage that was measured.
struct Measured {
  std::size_t action = kActions.size();  // behind the last one: a wait
  int microbatch = 0;
  double begin = 0.0;
  double end = 0.0;
};

struct MeasuredStage {
  int stage = 0;
  std::vector<Measured> actions;
};

// Returns the number at the end of a text; nothing if there is none.
std::optional<int> number_behind(std::string_view text, std::string_view before) {
  if (!text.starts_with(before)) return std::nullopt;
  text.remove_prefix(before.size());
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::vector<Measured> actions_of(const std::vector<TracedSpan>& spans) {
  std::vector<Measured> list;
  for (const TracedSpan& span : spans) {
    if (span.name == kStageWait) list.push_back({.begin = span.begin, .end = span.end});
    for (std::size_t action = 0; action < kActions.size(); ++action) {
      const auto microbatch = number_behind(span.name, std::string(kActions[action]) + " ");
      if (microbatch) list.push_back({action, *microbatch, span.begin, span.end});
    }
  }
  return list;
}

// Returns the stages whose threads are in the close-up: the replica's own is its first stage's.
std::vector<MeasuredStage> measured_stages(const TraceSummary& summary) {
  std::vector<MeasuredStage> stages;
  for (const auto& [thread, spans] : summary.close_up) {
    const bool own = thread == summary.close_up_thread;
    const std::optional<int> number = own ? 0 : number_behind(thread, summary.close_up_thread + ", stage ");
    if (number) stages.push_back({*number, actions_of(spans)});
  }
  std::sort(stages.begin(), stages.end(), [](const auto& a, const auto& b) { return a.stage < b.stage; });
  return stages;
}

// What is measured of all stages together.
struct StageSums {
  double begin = std::numeric_limits<double>::infinity();
  double end = 0.0;
  std::array<double, kActions.size()> seconds = {};
  std::array<int, kActions.size()> count = {};
  int microbatches = 0;

  void add(const Measured& measured) {
    if (measured.action == kActions.size()) return;
    begin = std::min(begin, measured.begin);
    end = std::max(end, measured.end);
    seconds[measured.action] += measured.end - measured.begin;
    ++count[measured.action];
    microbatches = std::max(microbatches, measured.microbatch + 1);
  }
  double mean(PipelineOp op) const {
    const auto i = static_cast<std::size_t>(op);
    return count[i] == 0 ? 0.0 : seconds[i] / count[i];
  }
};

nlohmann::ordered_json to_json(const MeasuredStage& stage, double origin) {
  nlohmann::ordered_json spans = nlohmann::json::array();
  for (const Measured& each : stage.actions) {
    const bool waits = each.action == kActions.size();
    nlohmann::ordered_json span{{"action", waits ? "wait" : kActions[each.action]}};
    if (!waits) span["microbatch"] = each.microbatch;
    // A wait may have begun before the first action.
    span["begin"] = std::max(each.begin - origin, 0.0);
    span["end"] = std::max(each.end - origin, 0.0);
    spans.push_back(std::move(span));
  }
  return {{"stage", stage.stage}, {"spans", std::move(spans)}};
}

MeasuredStage scheduled_stage(int number, const std::vector<PipelineSpan>& spans) {
  MeasuredStage stage{number, {}};
  for (const PipelineSpan& span : spans) {
    stage.actions.push_back({static_cast<std::size_t>(span.action.op), span.action.microbatch, span.begin, span.end});
  }
  return stage;
}

// Returns what each stage of this process did in the step that a trace has a close-up of, what the schedule has all
// stages do with the mean times of these actions, and for how much of the time stages had no work in both; nothing
// where no step of a pipeline was traced.
std::optional<nlohmann::ordered_json> pipeline_timeline(const TraceSummary& summary,
                                                        const PipelineScheduleOptions& options, int stages) {
  const std::vector<MeasuredStage> measured = measured_stages(summary);
  StageSums sums;
  for (const MeasuredStage& stage : measured) {
    for (const Measured& each : stage.actions) sums.add(each);
  }
  if (sums.microbatches == 0) return std::nullopt;
  double work = 0.0;
  for (const double seconds : sums.seconds) work += seconds;
  const PipelineSchedule schedule = make_schedule(options, stages, sums.microbatches);
  const PipelineTimeline planned = schedule.simulate({.forward = sums.mean(PipelineOp::kForward),
                                                      .backward = sums.mean(PipelineOp::kBackward),
                                                      .weight = sums.mean(PipelineOp::kWeight)});
  nlohmann::ordered_json json{
      {"schedule", schedule.name()},
      {"microbatches", sums.microbatches},
      {"stages", stages},
      {"measured_bubble", 1.0 - work / (static_cast<double>(measured.size()) * (sums.end - sums.begin))},
      {"scheduled_bubble", planned.bubble},
      {"scheduled", nlohmann::json::array()},
      {"measured", nlohmann::json::array()}};
  for (int i = 0; i < stages; ++i) {
    json["scheduled"].push_back(to_json(scheduled_stage(i, planned.stages[static_cast<std::size_t>(i)]), 0.0));
  }
  for (const MeasuredStage& stage : measured) json["measured"].push_back(to_json(stage, sums.begin));
  return json;
}

void add_timeline(const TraceSummary& summary, const StrategyFlags& flags, nlohmann::ordered_json& timeline,
                  std::ostream& out) {
  auto pipeline = pipeline_timeline(summary, schedule_of(flags), flags.stages);
  if (!pipeline) return;
  const auto percent = [&](const char* key) { return std::round(1000.0 * pipeline->at(key).get<double>()) / 10.0; };
  out << "  the last step: stages without work " << percent("measured_bubble") << "%, by the schedule "
      << percent("scheduled_bubble") << "%\n";
  timeline["pipeline"] = std::move(*pipeline);
}

}  // namespace

TimelinePart timeline_of_pipelines() {
  return {.close_up = kPipelineStep, .add = add_timeline};
}

}  // namespace cohort
