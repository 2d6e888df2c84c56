// ReplicaRunner: carries out one replica's part of a run(): with its whole share at once, or with parts of it.
#pragma once

#include <functional>
#include <memory>

#include "cohort/strategy.h"

namespace cohort {

class StrategyCore;

class ReplicaRunner {
 public:
  virtual ~ReplicaRunner() = default;
  // Called in the replica's thread, in its context. The job knows the sizes of the shares.
  virtual void run(detail::Job& job, Replica& replica) = 0;
};

using MakeRunner = std::function<std::unique_ptr<ReplicaRunner>(StrategyCore& core, int local_id)>;

// Returns the maker of runners that call the job's function once.
MakeRunner whole_shares();

}  // namespace cohort
