// The conversation between agents and the roster of their leader: one call that each agent repeats.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cohort/cluster/security.h"
#include "rpc/security.h"
#include "wings/launch/elastic/roster.h"

namespace cohort::cli {

// The leader as an agent sees it. One thread uses it.
class Leader {
 public:
  virtual ~Leader() = default;
  // Reports and returns the leader's order, or nothing if the leader does not answer.
  virtual std::optional<Order> exchange(const Report& report) = 0;
};

// The leader's own end, and the server for the other agents. Prints events on standard error.
class RendezvousServer final : public Leader {
 public:
  // Listens on the address. Unavailable: it cannot. FailedPrecondition: other machines reach it, and there is no
  // security.
  RendezvousServer(const std::string& address, const AgentRosterOptions& options, const JobSecurity& security);
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;
  // Ends the run with status 1 unless finish() was called. Waits until all agents know it or are lost.
  ~RendezvousServer() override;

  std::optional<Order> exchange(const Report& report) override;
  // Ends the run on all agents. Only the first call counts.
  void finish(int code);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

std::unique_ptr<Leader> connect_to_rendezvous(const std::string& address, const SecurityOptions& security);

}  // namespace cohort::cli
