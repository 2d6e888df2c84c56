// CoordinationServer: serves the CoordinationState of a cluster on one address.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cluster/coordination/state.h"
#include "rpc/channel.h"
#include "rpc/security.h"

namespace cohort {

class CoordinationServer {
 public:
  // Listens on `address` and on the further hosts, and nowhere else. Unavailable: one is in use or not this machine's.
  // FailedPrecondition: other machines reach it, and there is no security.
  CoordinationServer(const ClusterSpec& cluster, const std::string& address,
                     std::chrono::milliseconds heartbeat_timeout, const JobSecurity& security,
                     const std::vector<std::string>& further_hosts = {});
  CoordinationServer(const CoordinationServer&) = delete;
  CoordinationServer& operator=(const CoordinationServer&) = delete;
  // Ends every waiting call.
  ~CoordinationServer();

  const CoordinationState& state() const;

  // Returns a channel to this server that does not use the network.
  std::shared_ptr<Channel> local_channel();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
