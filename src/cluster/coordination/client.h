// CoordinationClient: a task's end of the coordination service. Calls that wait do so in slices, each with a deadline
// of its own, and log every `report_interval` who is missing.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cluster/beat_plan.h"
#include "cohort/cluster/cluster_spec.h"
#include "coordination.pb.h"
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
  // Leaves the group. Tries for so long if the leader does not answer.
  void leave(std::chrono::milliseconds limit);
  std::string put(const std::string& key, const std::string& value, bool if_absent);
  std::string get(const std::string& key, std::chrono::milliseconds timeout);
  std::optional<std::string> try_get(const std::string& key);

  // Takes the group for failed: calls under way and later ones, except leave(), end with Unavailable and this reason.
  void give_up(const std::string& reason);

  // Makes one heartbeat. Returns nothing when the leader does not answer.
  std::optional<coordination::Answer> beat(std::size_t known_left, const BeatPlan::Attempt& attempt);
  // Ends the heartbeat under way, and at once those to come.
  void stop_beating() { heartbeats_.close(); }

 private:
  enum class Waiting { kBesideHeartbeats, kAsSignOfLife };
  template <typename Request>
  coordination::Answer attempt(const std::string& call, const Request& request, std::chrono::milliseconds limit,
                               std::chrono::milliseconds again = RpcProbe::kNever);
  template <typename Request>
  coordination::Answer once(const std::string& what, const std::string& call, const Request& request);
  template <typename Request>
  coordination::Answer until_complete(const std::string& what, const std::string& call, Request request,
                                      std::chrono::milliseconds timeout, Waiting waiting = Waiting::kBesideHeartbeats);
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
  RpcProbe last_word_;
};

}  // namespace cohort
