// The parts of a pipeline's run that there are where other processes have stages of its line: messages that arrive, and
// what all processes know at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/parallel/pipeline_schedule.h"
#include "wings/pipeline/strategy/passage.h"

namespace cohort {

// Takes the messages of the other processes, a thread for each. The schedule says how many there are.
class Arrivals {
 public:
  Arrivals(const std::shared_ptr<PipelineRun>& run, const PipelineSchedule& schedule);
  // Returns when all have arrived, or the run has failed.
  void wait() { threads_.clear(); }

 private:
  std::vector<std::jthread> threads_;
};

// What a replica has that a function may change, as it was before a run.
class BeforeRun {
 public:
  BeforeRun(StrategyCore& core, int local_id);
  // Returns the replica's components of the variables that have changed, with their numbers.
  std::vector<std::pair<int64_t, torch::Tensor>> changed() const;
  const std::vector<torch::Tensor>& components() const { return components_; }

 private:
  std::vector<torch::Tensor> components_;
  std::vector<uint32_t> versions_;
};

// Puts together what the calls of a function have returned, and gives all processes of the line what the last one has:
// these results, variables that are synchronised on read, and random streams. A collective of the line.
void share_results(PipelineRun& run, const std::vector<detail::SharePart>& parts, const BeforeRun& before);

}  // namespace cohort
