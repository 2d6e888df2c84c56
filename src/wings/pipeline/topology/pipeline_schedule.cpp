// A schedule is checked in two steps: that every action is there once, on its stage, and that the stages, each of which
// takes its actions in order, do not end up waiting for each other. The second is found out by playing it.
#include "cohort/parallel/pipeline_schedule.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/fail.h"
#include "wings/pipeline/topology/is_work.h"

namespace cohort {

namespace {

constexpr std::array<const char*, 7> kTexts = {"forward",     "backward",         "weight",       "receive input",
                                               "send output", "receive gradient", "send gradient"};

using Key = std::tuple<PipelineOp, int, int>;

Key key_of(PipelineOp op, int microbatch, int chunk) {
  return {op, microbatch, chunk};
}
Key key_of(const PipelineAction& action) {
  return key_of(action.op, action.microbatch, action.chunk);
}

// Plays a schedule.
class Game {
 public:
  Game(const PipelineSchedule& schedule, const PipelineCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        next_(schedule.stages().size(), 0),
        free_(schedule.stages().size(), 0.0),
        alive_(schedule.stages().size(), 0) {
    timeline_.most_alive.assign(schedule.stages().size(), 0);
    timeline_.stages.resize(schedule.stages().size());
  }

  PipelineTimeline play() {
    bool moved = true;
    while (std::exchange(moved, false)) {
      for (std::size_t stage = 0; stage < next_.size(); ++stage) {
        while (next_[stage] < schedule_.stages()[stage].size() && take(stage)) moved = true;
      }
    }
    fail_if_stuck();
    timeline_.time = *std::max_element(free_.begin(), free_.end());
    double work = 0.0;
    for (const auto& spans : timeline_.stages) {
      for (const PipelineSpan& span : spans) work += span.end - span.begin;
    }
    const double all = timeline_.time * static_cast<double>(next_.size());
    timeline_.bubble = all > 0.0 ? 1.0 - work / all : 0.0;
    return std::move(timeline_);
  }

 private:
  // Returns when what an action needs is there; nothing if it is not.
  std::optional<double> ready(const PipelineAction& action) const {
    const auto [op, microbatch, chunk] = std::tuple(action.op, action.microbatch, action.chunk);
    std::vector<Key> needs;
    const bool alone = schedule_.num_stages() == 1;
    const int last = schedule_.num_chunks() - 1;
    switch (op) {
      case PipelineOp::kForward:
        if (chunk > 0)
          needs.push_back(key_of(alone ? op : PipelineOp::kReceiveInput, microbatch, chunk - (alone ? 1 : 0)));
        break;
      case PipelineOp::kBackward:
        needs.push_back(key_of(PipelineOp::kForward, microbatch, chunk));
        if (chunk < last) {
          needs.push_back(key_of(alone ? op : PipelineOp::kReceiveGradient, microbatch, chunk + (alone ? 1 : 0)));
        }
        break;
      case PipelineOp::kWeight:
      case PipelineOp::kSendGradient:
        needs.push_back(key_of(PipelineOp::kBackward, microbatch, chunk));
        break;
      case PipelineOp::kSendOutput:
        needs.push_back(key_of(PipelineOp::kForward, microbatch, chunk));
        break;
      case PipelineOp::kReceiveInput:
        needs.push_back(key_of(PipelineOp::kSendOutput, microbatch, chunk - 1));
        break;
      case PipelineOp::kReceiveGradient:
        needs.push_back(key_of(PipelineOp::kSendGradient, microbatch, chunk + 1));
        break;
    }
    double time = 0.0;
    for (const Key& need : needs) {
      const auto found = ends_.find(need);
      if (found == ends_.end()) return std::nullopt;
      time = std::max(time, found->second);
    }
    return time;
  }

  double cost(const PipelineAction& action) const {
    switch (action.op) {
      case PipelineOp::kForward:
        return costs_.forward;
      case PipelineOp::kBackward:
        return costs_.backward + (schedule_.splits(action.microbatch, action.chunk) ? 0.0 : costs_.weight);
      case PipelineOp::kWeight:
        return costs_.weight;
      default:
        return 0.0;
    }
  }

  bool take(std::size_t stage) {
    const PipelineAction& action = schedule_.stages()[stage][next_[stage]];
    const std::optional<double> needed = ready(action);
    if (!needed) return false;
    ++next_[stage];
    const double begin = std::max(free_[stage], *needed);
    const double end = begin + cost(action);
    free_[stage] = end;
    const bool sends = action.op == PipelineOp::kSendOutput || action.op == PipelineOp::kSendGradient;
    ends_[key_of(action)] = end + (sends ? costs_.message : 0.0);
    if (!is_work(action.op)) return true;
    timeline_.stages[stage].push_back({action, begin, end});
    const bool ends = action.op == PipelineOp::kWeight ||
                      (action.op == PipelineOp::kBackward && !schedule_.splits(action.microbatch, action.chunk));
    alive_[stage] += action.op == PipelineOp::kForward ? 1 : ends ? -1 : 0;
    timeline_.most_alive[stage] = std::max(timeline_.most_alive[stage], alive_[stage]);
    return true;
  }

  void fail_if_stuck() const {
    std::vector<std::string> waits;
    for (std::size_t stage = 0; stage < next_.size(); ++stage) {
      const auto& actions = schedule_.stages()[stage];
      if (next_[stage] == actions.size()) continue;
      waits.push_back(c10::str("stage ", stage, " at ", actions[next_[stage]].to_string()));
    }
    if (waits.empty()) return;
    fail<InvalidArgument>("[pipeline] schedule ", schedule_.name(), " comes to no end, because its stages wait for ",
                          "each other: ", c10::Join(", ", waits));
  }

  const PipelineSchedule& schedule_;
  PipelineCosts costs_;
  std::vector<std::size_t> next_;
  std::vector<double> free_;
  std::vector<int> alive_;
  std::map<Key, double> ends_;
  PipelineTimeline timeline_;
};

}  // namespace

std::string PipelineAction::to_string() const {
  return c10::str(kTexts[static_cast<std::size_t>(op)], " of microbatch ", microbatch, " in chunk ", chunk);
}

PipelineSchedule::PipelineSchedule(std::string name, int microbatches, int chunks_per_stage,
                                   std::vector<std::vector<PipelineAction>> stages)
    : name_(std::move(name)),
      microbatches_(microbatches),
      chunks_per_stage_(chunks_per_stage),
      stages_(std::move(stages)) {
  if (microbatches < 1 || chunks_per_stage < 1 || stages_.empty()) {
    fail<InvalidArgument>("[pipeline] schedule ", name_, ": ", microbatches, " microbatches, ", chunks_per_stage,
                          " chunks a stage and ", stages_.size(), " stages, wanted 1 or more of each");
  }
  splits_.assign(place_of(microbatches_, 0), false);
  check();
}

std::size_t PipelineSchedule::place_of(int microbatch, int chunk) const {
  return static_cast<std::size_t>(microbatch) * static_cast<std::size_t>(num_chunks()) +
         static_cast<std::size_t>(chunk);
}

bool PipelineSchedule::splits(int microbatch, int chunk) const {
  return splits_[place_of(microbatch, chunk)];
}

void PipelineSchedule::check() {
  std::map<Key, int> counts;
  std::vector<int> next(static_cast<std::size_t>(num_chunks()), 0);
  const std::string who = "[pipeline] schedule " + name_ + ": ";
  for (int stage = 0; stage < num_stages(); ++stage) {
    for (const PipelineAction& action : stages_[static_cast<std::size_t>(stage)]) {
      const std::string what = c10::str(who, "stage ", stage, " has the ", action.to_string());
      if (action.microbatch < 0 || action.microbatch >= microbatches_ || action.chunk < 0 ||
          action.chunk >= num_chunks()) {
        fail<InvalidArgument>(what, ", but there are ", microbatches_, " microbatches and ", num_chunks(), " chunks");
      }
      if (action.chunk % num_stages() != stage) {
        fail<InvalidArgument>(what, ", which lies on stage ", action.chunk % num_stages());
      }
      if (++counts[key_of(action)] > 1) fail<InvalidArgument>(what, " twice");
      if (action.op == PipelineOp::kWeight) {
        splits_[place_of(action.microbatch, action.chunk)] = true;
      }
      int& wanted = next[static_cast<std::size_t>(action.chunk)];
      if (action.op == PipelineOp::kForward && action.microbatch != wanted++) {
        fail<InvalidArgument>(what, " where microbatch ", wanted - 1, " is due: they come in their order");
      }
    }
  }
  for (int microbatch = 0; microbatch < microbatches_; ++microbatch) {
    for (int chunk = 0; chunk < num_chunks(); ++chunk) {
      const bool alone = num_stages() == 1;
      const bool first = chunk == 0 || alone;
      const bool last = chunk == num_chunks() - 1 || alone;
      const auto require = [&](PipelineOp op, bool wanted) {
        const bool there = counts.contains(key_of(op, microbatch, chunk));
        if (there == wanted) return;
        const PipelineAction action{op, microbatch, chunk};
        fail<InvalidArgument>(who, "stage ", chunk % num_stages(), wanted ? " lacks the " : " has the ",
                              action.to_string(), wanted ? "" : ", for which there is no other end");
      };
      require(PipelineOp::kForward, true);
      require(PipelineOp::kBackward, true);
      require(PipelineOp::kReceiveInput, !first);
      require(PipelineOp::kSendGradient, !first);
      require(PipelineOp::kSendOutput, !last);
      require(PipelineOp::kReceiveGradient, !last);
    }
  }
}

PipelineSchedule PipelineSchedule::of_work(std::string name, int microbatches, int chunks_per_stage,
                                           const std::vector<std::vector<PipelineAction>>& stages) {
  const int last = chunks_per_stage * static_cast<int>(stages.size()) - 1;
  const bool alone = stages.size() == 1;
  std::vector<std::vector<PipelineAction>> whole;
  for (const auto& work : stages) {
    std::vector<PipelineAction>& actions = whole.emplace_back();
    for (const PipelineAction& action : work) {
      const auto add = [&](PipelineOp op, bool wanted) {
        if (wanted && !alone) actions.push_back({op, action.microbatch, action.chunk});
      };
      const bool forward = action.op == PipelineOp::kForward;
      const bool backward = action.op == PipelineOp::kBackward;
      add(PipelineOp::kReceiveInput, forward && action.chunk > 0);
      add(PipelineOp::kReceiveGradient, backward && action.chunk < last);
      actions.push_back(action);
      add(PipelineOp::kSendOutput, forward && action.chunk < last);
      add(PipelineOp::kSendGradient, backward && action.chunk > 0);
    }
  }
  return PipelineSchedule(std::move(name), microbatches, chunks_per_stage, std::move(whole));
}

PipelineTimeline PipelineSchedule::simulate(const PipelineCosts& costs) const {
  return Game(*this, costs).play();
}

std::string PipelineTimeline::draw(double unit) const {
  if (!(unit > 0.0)) fail<InvalidArgument>("[pipeline] draw: unit is ", unit, ", wanted a positive time");
  std::size_t width = 2;
  for (const auto& spans : stages) {
    for (const PipelineSpan& span : spans) {
      width = std::max(width, 1 + std::to_string(span.action.microbatch).size());
    }
  }
  const auto column = [&](double at) { return static_cast<std::size_t>(std::llround(at / unit)); };
  const auto cell = [&](std::string text) { return text + std::string(width + 1 - text.size(), ' '); };
  std::ostringstream out;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    std::vector<std::string> cells(column(time), cell("."));
    for (const PipelineSpan& span : stages[stage]) {
      const char letter = "FBW"[static_cast<std::size_t>(span.action.op)];
      for (std::size_t at = column(span.begin); at < std::min(column(span.end), cells.size()); ++at) {
        const bool begins = at == column(span.begin);
        cells[at] = cell(begins ? letter + std::to_string(span.action.microbatch) : std::string(width, '-'));
      }
    }
    std::string line = c10::str("stage ", stage, ": ");
    for (const std::string& each : cells) line += each;
    out << line.substr(0, line.find_last_not_of(' ') + 1) << "\n";
  }
  return out.str();
}

}  // namespace cohort
