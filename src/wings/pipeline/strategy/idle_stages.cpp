// Each action has a clock: of every stage, how many of its actions certainly are before it (Fidge, 1988; Mattern,
// 1989). An action is behind the one before it on its stage, and a receive behind its send.
#include "wings/pipeline/strategy/idle_stages.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "wings/pipeline/topology/is_work.h"

namespace cohort {

namespace {

using Clock = std::vector<std::size_t>;

// Returns the clocks of all actions; the schedule has been played to its end.
std::vector<std::vector<Clock>> clocks_of(const PipelineSchedule& schedule) {
  const auto& stages = schedule.stages();
  std::vector<std::vector<Clock>> clocks(stages.size());
  std::map<std::tuple<bool, int, int>, Clock> sent;  // a gradient, of a microbatch, by the chunk that receives it
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      std::vector<Clock>& own = clocks[stage];
      while (own.size() < stages[stage].size()) {
        const PipelineAction& action = stages[stage][own.size()];
        Clock clock = own.empty() ? Clock(stages.size()) : own.back();
        clock[stage] = own.size();
        const bool receives_gradient = action.op == PipelineOp::kReceiveGradient;
        if (receives_gradient || action.op == PipelineOp::kReceiveInput) {
          const auto from = sent.find({receives_gradient, action.microbatch, action.chunk});
          if (from == sent.end()) break;
          for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], from->second[i]);
        }
        if (action.op == PipelineOp::kSendOutput || action.op == PipelineOp::kSendGradient) {
          const bool is_gradient = action.op == PipelineOp::kSendGradient;
          Clock after = clock;
          ++after[stage];
          sent[{is_gradient, action.microbatch, action.chunk + (is_gradient ? -1 : 1)}] = after;
        }
        own.push_back(std::move(clock));
        has_moved = true;
      }
    }
  }
  return clocks;
}

}  // namespace

IdleStages::IdleStages(const PipelineSchedule& schedule, int first, int count) {
  const auto& stages = schedule.stages();
  const std::vector<std::vector<Clock>> clocks = clocks_of(schedule);
  const auto works = [](const PipelineAction& action) { return is_work(action.op); };
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    idle_.emplace_back(stages[stage].size());
    for (std::size_t i = 0; i < stages[stage].size(); ++i) {
      if (!is_work(stages[stage][i].op)) continue;
      for (int number = 0; number < count; ++number) {
        const std::size_t other = static_cast<std::size_t>(first) + static_cast<std::size_t>(number);
        if (other == stage) continue;
        const auto begin = std::find_if(stages[other].begin(), stages[other].end(), works) - stages[other].begin();
        const auto end = stages[other].rend() - std::find_if(stages[other].rbegin(), stages[other].rend(), works);
        const bool has_ended = clocks[stage][i][other] >= static_cast<std::size_t>(end);
        const bool has_begun = clocks[other][static_cast<std::size_t>(begin)][stage] <= i;
        if (has_ended || !has_begun) idle_[stage][i].push_back(number);
      }
    }
  }
}

const std::vector<int>& IdleStages::during(int stage, std::size_t action) const {
  return idle_[static_cast<std::size_t>(stage)][action];
}

}  // namespace cohort
