// ServerTraining: how a Model trains whose variables are on parameter servers. The chief hands out the batches, the
// workers do the steps, and what they measured comes back.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "cohort/cluster/cluster_coordinator.h"
#include "cohort/cluster/parameter_server_strategy.h"
#include "cohort/distributed_dataset.h"

namespace cohort {

class ModelState;

class ServerTraining {
 public:
  // Registers the model's step, which has to happen before serve().
  ServerTraining(const ParameterServerStrategy& strategy, const std::shared_ptr<ModelState>& state);

  bool is_chief() const { return strategy_.is_coordinator(); }
  // FailedPrecondition: this is a worker or a server, or serve() was not called.
  void require_chief(const std::string& what) const;

  // All below are the chief's.

  // Before steps. The servers get this process's values where these have been changed since they had them.
  void begin();
  void note_change() { changed_ = true; }
  // Hands out a step. Waits while the workers have more than enough to do.
  void step(const GlobalBatch& batch);
  // Adds to the model's metrics what the steps have measured that have ended.
  void collect();
  // When all have ended; the values of this process are those of the servers then.
  void finish();

  // Of the optimizer, with those that are still being done.
  int64_t iterations() const;

 private:
  void take_oldest();
  std::size_t most_ahead() const;

  ParameterServerStrategy strategy_;
  ModelState& state_;  // the owner
  std::string step_;
  std::size_t shares_ = 1;  // of a step
  std::deque<RemoteValue> under_way_;
  int64_t steps_ = 0;  // since finish()
  bool changed_ = false;
};

}  // namespace cohort
