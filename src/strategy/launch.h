// Launch: runs the replicas of this process, and lets them meet in the middle of a run.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "cohort/strategy.h"
#include "strategy/placement.h"

namespace cohort {

class StrategyCore;

// The text for an exception that is not derived from std::exception.
inline constexpr const char* kNoStdException = "an exception that is no std::exception";

class Launch {
 public:
  virtual ~Launch() = default;

  // Runs the job on every local replica and returns when all have ended. The error of the replica that failed first
  // comes out here; the others' collectives are cancelled.
  virtual void run(const std::shared_ptr<detail::Job>& job) = 0;

  // Joins the local replicas of this run: waits for all, and one calls `lead` with what each has brought, in
  // cross-replica context.
  virtual void meet(int local_id, std::string_view what, void* mine,
                    const std::function<void(std::span<void* const>)>& lead) = 0;

  // The meetings of an exchange (collective/local/rendezvous.h): all arrive for the same, may wait for each other
  // between its phases, and depart. A single replica waits for nobody.
  virtual void arrive(int local_id, std::string_view what) = 0;
  virtual void sync(int local_id) = 0;
  virtual void depart(int local_id) = 0;

  // Returns whether replicas run beside each other in this process.
  virtual bool has_threads() const = 0;

  // Returns what the choice of a gradient path depends on, as far as the launch knows it.
  virtual PathFacts facts() const = 0;

  // Enters the device on which everything belongs that is created in the strategy's scope. Where every replica has a
  // device of its own there is none.
  virtual void enter_device(std::optional<DeviceScope>& scope) const = 0;
};

// Returns the launch of the core's replicas: the caller's thread for a single one, else a thread for each, which look
// for work some hundred microseconds before they sleep where `spin` says so. The core outlives it.
std::unique_ptr<Launch> make_launch(StrategyCore& core, bool spin);

}  // namespace cohort
