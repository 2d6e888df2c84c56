// IdleStages: which stages of a schedule certainly have nothing to do while another one works.
#pragma once

#include <cstddef>
#include <vector>

#include "cohort/parallel/pipeline_schedule.h"

namespace cohort {

// An immutable value.
class IdleStages {
 public:
  // The stages from `first` on, so many of them, are those of this process, which are counted from 0.
  IdleStages(const PipelineSchedule& schedule, int first, int count);

  // Returns the stages of this process that do all of their work before the action of a stage of the schedule, or
  // behind it, whatever time each action takes; they ascend.
  const std::vector<int>& during(int stage, std::size_t action) const;

 private:
  std::vector<std::vector<std::vector<int>>> idle_;  // by stage and action
};

}  // namespace cohort
