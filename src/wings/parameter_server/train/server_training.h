// ServerTraining: trains a Model whose variables are on parameter servers. The chief hands out the batches, the workers
// do the steps, and what they measured comes back.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "cohort/cluster/cluster_coordinator.h"
#include "cohort/cluster/parameter_server_strategy.h"
#include "train/model/training_steps.h"

namespace cohort {

class ServerTraining final : public TrainingSteps {
 public:
  // Registers the model's step, which has to happen before serve().
  ServerTraining(const ParameterServerStrategy& strategy, const std::shared_ptr<ModelState>& state);

  // Throws FailedPrecondition, too, if serve() was not called.
  void require_in_charge(const std::string& what) const override;
  // Throws FailedPrecondition after serve().
  void require_compiling() const override;
  // Gives the servers the values of this process if these have been changed since they had them.
  void begin() override;
  // Hands out a step. Waits while the workers have more than enough to do.
  void step(const GlobalBatch& batch) override;
  void collect() override;
  // Reads the values of the servers when all steps have ended. Only the chief has handed out any work.
  void finish() override;
  void note_change() override { changed_ = true; }
  int64_t iterations() const override;

 private:
  void take_oldest();
  std::size_t most_ahead() const;

  ParameterServerStrategy strategy_;
  ModelState& state_;  // the owner
  std::string step_;
  std::size_t shares_ = 1;  // the shares of a step
  std::deque<RemoteValue> under_way_;
  int64_t steps_ = 0;  // since finish()
  bool changed_ = false;
};

// The steps of models under ParameterServerStrategy.
StepsMaker steps_by_servers();

}  // namespace cohort
