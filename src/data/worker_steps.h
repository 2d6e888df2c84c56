// JointSteps: the steps of a distributed input as the workers of a group take them together, however much each of them
// has.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/example.h"
#include "collective/process/process_communicator.h"
#include "strategy/core.h"
#include "strategy/worker_group.h"

namespace cohort {

using Shares = std::vector<Example>;

// Returns a number, from 0 to 2^31 - 1, that two workers have in common if their shares are the same bytes.
int64_t digest_of(const Shares& shares);

class JointSteps {
 public:
  struct OwnStep {
    Shares shares;
    // The digest_of() them where several workers take the same shares (StrategyCore::pipelines()), else 0.
    int64_t digest = 0;
  };
  struct Step {
    Shares shares;            // the shares of this worker's replicas
    int64_t total = 0;        // examples over all workers
    bool some_empty = false;  // a share of some worker is empty
  };

  // Returns this worker's next shares; nullopt at its end, after which it is not called again.
  using Own = std::function<std::optional<OwnStep>()>;

  virtual ~JointSteps() = default;

  // Returns the next step; nullopt when all workers have ended. A collective of all workers. An error of own() comes
  // out here. `flags` are told to all.
  virtual std::optional<Step> next(int64_t flags) = 0;

  // Returns the flags of all workers, or-ed, that came with the last next().
  int64_t raised() const { return raised_; }

  // Returns the step that this worker has taken from own() already; for saving positions.
  const std::optional<OwnStep>& held() const { return held_; }

 protected:
  int64_t raised_ = 0;
  std::optional<OwnStep> held_;
};

// Returns the steps of the workers of a strategy; those of a worker that ends alone are its own. `pass` is the number
// of the pass over the data, which all workers compare in every step.
std::unique_ptr<JointSteps> make_joint_steps(const StrategyCore& core, JointSteps::Own own, int64_t pass);

class WorkerSteps final : public JointSteps {
 public:
  WorkerSteps(const StrategyCore& core, Own own, int64_t pass)
      : core_(core),
        world_(core.workers().world()),
        own_(std::move(own)),
        what_("next step of pass " + std::to_string(pass) + " over a distributed input") {}
  WorkerSteps(const WorkerSteps&) = delete;
  WorkerSteps& operator=(const WorkerSteps&) = delete;
  ~WorkerSteps() override;

  // Returns shares of size 0 when the data of this worker has ended and that of others has not; nullopt when all have
  // ended. An error of own() comes out here, and as Unavailable from all other workers. Those that have had no data at
  // all learn from others what an empty share looks like. Workers of one pipeline (StrategyCore::pipelines()) read the
  // same examples, which count once; FailedPrecondition: they are not the same. The things that are to be agreed on for
  // a step are exchanged while the step before runs, so flags are heard one step later (at once in the first).
  std::optional<Step> next(int64_t flags) override;

 private:
  void begin(int64_t flags);
  std::optional<Step> finish();
  // Fails if a worker has said something else than the first one of its pipeline, which has said `first`.
  void require_same(std::size_t rank, int64_t said, int64_t first) const;
  void learn_template();

  const StrategyCore& core_;
  ProcessCommunicator& world_;
  Own own_;
  std::string what_;
  std::shared_ptr<ProcessCommunicator::Begun> begun_;
  std::exception_ptr error_;  // the error of own()
  bool ended_ = false;
  Example template_;  // a share of size 0
};

}  // namespace cohort
