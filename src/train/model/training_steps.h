// TrainingSteps: makes a model's training steps. Usually this process makes them; a wing may hand them out to others,
// and they may still be under way when step() returns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cohort/distributed_dataset.h"
#include "cohort/strategy.h"

namespace cohort {

class ModelState;

class TrainingSteps {
 public:
  virtual ~TrainingSteps() = default;

  // Throws FailedPrecondition if this process only does what another one asks for.
  virtual void require_in_charge(const std::string& /*what*/) const {}
  // Throws FailedPrecondition if other processes have begun to make steps with what compile() was given before.
  virtual void require_compiling() const {}
  // Begins a run of steps.
  virtual void begin() {}
  // Makes or hands out one step.
  virtual void step(const GlobalBatch& batch) = 0;
  // Adds to the model's metrics what steps have measured that have ended since.
  virtual void collect() {}
  // Waits for all steps; the values of this process are the trained ones then.
  virtual void finish() {}
  // Notes that weights or slots have been set here.
  virtual void note_change() {}
  // Returns the number of the optimizer's steps, with those that are still under way.
  virtual int64_t iterations() const = 0;
};

// Makes the steps in this process.
class StepsHere final : public TrainingSteps {
 public:
  explicit StepsHere(ModelState& state) : state_(state) {}

  void step(const GlobalBatch& batch) override;
  // Waits to know whether there was an update.
  void finish() override;
  int64_t iterations() const override;

 private:
  ModelState& state_;  // the owner
};

// Makes the steps of the models of some strategies otherwise. An extension.
struct StepsMaker {
  const char* takers;  // those who are given steps, for messages
  bool (*serves)(const Strategy& strategy);
  // Makes the steps of a model that is built and compiled, which then gets its optimizer at once.
  std::unique_ptr<TrainingSteps> (*make)(const std::shared_ptr<ModelState>& state);
};

}  // namespace cohort
