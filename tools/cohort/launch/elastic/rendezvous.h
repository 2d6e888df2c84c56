// How agents and the roster of their leader talk: one call, again and again.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cohort/cluster/security.h"
#include "launch/elastic/roster.h"

namespace cohort::cli {

// Whom an agent talks to; used by one thread.
class Leader {
 public:
  virtual ~Leader() = default;
  // Nothing when the leader does not answer.
  virtual std::optional<Order> exchange(const Report& report) = 0;
};

// The leader's own end, and the service for the others. Prints what happens on standard error.
class RendezvousServer final : public Leader {
 public:
  // Unavailable: it cannot listen on the address.
  RendezvousServer(const std::string& address, const RosterOptions& options, const SecurityOptions& security);
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;
  // Ends the run with 1 unless finish() was called; waits until the agents have heard of it, or are lost.
  ~RendezvousServer() override;

  std::optional<Order> exchange(const Report& report) override;
  // Ends the run on all agents; heard once.
  void finish(int code);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

std::unique_ptr<Leader> connect_to_rendezvous(const std::string& address, const SecurityOptions& security);

}  // namespace cohort::cli
