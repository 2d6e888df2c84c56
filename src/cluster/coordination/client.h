// CoordinationClient: a task's end of the coordination service. Calls that wait do so in slices, each with a deadline
// of its own, and log every `report_interval` who is missing.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cluster/cluster_spec.h"
#include "coordination.pb.h"
#include "rpc/channel.h"
#include "rpc/probe.h"

namespace cohort {

class CoordinationClient {
 public:
  // Makes the client of a task. `open` opens a connection to the leader, whose name in messages is `leader`.
  CoordinationClient(const RpcProbe::Open& open, const TaskId& task, const std::string& leader,
                     const MembershipOptions& options);

  // Enters the group and returns the information that each of its tasks gave about itself.
  std::vector<std::string> enter(const std::string& cluster);
  void barrier(const std::string& name, std::chrono::milliseconds timeout);
  void fail(const std::string& reason);
  void leave();
  std::string put(const std::string& key, const std::string& value, bool if_absent);
  std::string get(const std::string& key, std::chrono::milliseconds timeout);
  std::optional<std::string> try_get(const std::string& key);

  // Takes the group for failed: calls under way and later ones, except leave(), end with Unavailable and this reason.
  void give_up(const std::string& reason);

  // Makes one heartbeat, held by the leader for up to `wait`. Returns nothing when the leader does not answer.
  std::optional<coordination::Answer> beat(std::size_t known_left, std::chrono::milliseconds wait,
                                           std::chrono::milliseconds limit);
  // Ends the heartbeat under way, and at once those to come.
  void stop_beating() { heartbeats_.close(); }

 private:
  template <typename Request>
  coordination::Answer attempt(const std::string& call, const Request& request, std::chrono::milliseconds limit);
  template <typename Request>
  coordination::Answer once(const std::string& what, const std::string& call, const Request& request);
  template <typename Request>
  coordination::Answer until_complete(const std::string& what, const std::string& call, Request request,
                                      std::chrono::milliseconds timeout);
  void require_good(const std::string& what, const coordination::Answer& answer) const;
  [[noreturn]] void raise_unreachable(const std::string& what, const std::exception& error) const;
  std::optional<coordination::Answer> given_up();
  coordination::Task self() const;

  TaskId task_;
  uint64_t incarnation_;
  std::string leader_;
  MembershipOptions options_;
  std::mutex mutex_;
  std::optional<std::string> given_up_;
  // There are three clients because they end at different times: the calls when the group fails, the heartbeats when
  // the task leaves, and the farewell not at all.
  RpcProbe calls_;
  RpcProbe heartbeats_;
  RpcClient last_word_;
};

}  // namespace cohort
