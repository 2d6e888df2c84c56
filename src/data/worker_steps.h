// WorkerSteps: how the workers take the steps of a distributed input together, however much each of them has.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "cohort/example.h"
#include "collective/process/process_communicator.h"

namespace cohort {

using Shares = std::vector<Example>;

class WorkerSteps {
 public:
  struct Step {
    Shares shares;      // of this worker's replicas
    int64_t total = 0;  // examples over all workers
  };

  explicit WorkerSteps(ProcessCommunicator& world) : world_(world) {}

  // Collective, one message. own() gives this worker's shares, nullopt at its end; it is not called again then. Shares
  // of size 0 (of which there are `replicas`) when the data of this worker has ended and that of others has not;
  // nullopt when all have ended. What own() throws comes out here, and as Unavailable from all other workers. Those
  // that have had no data at all learn from others what an empty share looks like.
  std::optional<Step> next(const std::function<std::optional<Shares>()>& own, int replicas, int64_t flags);

  // The flags of all workers, or-ed, of the last next().
  int64_t raised() const { return raised_; }

 private:
  void learn_template();

  ProcessCommunicator& world_;
  bool ended_ = false;
  int64_t raised_ = 0;
  Example template_;  // a share of size 0
};

}  // namespace cohort
