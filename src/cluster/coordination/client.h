// CoordinationEnd: a task's end of what keeps the membership of its cluster. CoordinationClient is the one of the
// coordination service. Calls that wait log every `report_interval` who is missing.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/beat_plan.h"
#include "cohort/cluster/cluster_spec.h"
#include "coordination.pb.h"
#include "rpc/probe.h"

namespace cohort {

// Thread-safe.
class CoordinationEnd {
 public:
  virtual ~CoordinationEnd() = default;
  virtual std::string name() const = 0;  // of what keeps the membership, in messages
  // Enters the group and returns the information that each of its tasks gave about itself.
  virtual std::vector<std::string> enter(const std::string& cluster) = 0;
  virtual void barrier(const std::string& name, std::chrono::milliseconds timeout) = 0;
  virtual void fail(const std::string& reason) = 0;
  // Leaves the group. Tries for so long if nobody answers.
  virtual void leave(std::chrono::milliseconds limit) = 0;
  virtual std::string put(const std::string& key, const std::string& value, bool if_absent) = 0;
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  // Takes the group for failed: calls under way and later ones, except leave(), end with Unavailable and this reason.
  virtual void give_up(const std::string& reason) = 0;
  // Makes one heartbeat. Returns nothing when nobody answers.
  virtual std::optional<coordination::Answer> beat(std::size_t known_left, const BeatPlan::Attempt& attempt) = 0;
  // Ends the heartbeat under way, and at once those to come.
  virtual void stop_beating() = 0;
};

// An extension: opens what MembershipOptions::coordination names as "SCHEME...".
struct CoordinationRow {
  std::string_view scheme;
  std::unique_ptr<CoordinationEnd> (*open)(const ClusterSpec& cluster, const TaskId& task,
                                           const MembershipOptions& options);
};

// Waits in slices, each with a deadline of its own.
class CoordinationClient final : public CoordinationEnd {
 public:
  // Makes the client of a task. `open` opens a connection to the leader, whose name in messages is `leader`.
  CoordinationClient(const RpcProbe::Open& open, const TaskId& task, const std::string& leader,
                     const MembershipOptions& options);

  std::string name() const override { return "the coordination leader " + leader_; }
  std::vector<std::string> enter(const std::string& cluster) override;
  void barrier(const std::string& name, std::chrono::milliseconds timeout) override;
  void fail(const std::string& reason) override;
  void leave(std::chrono::milliseconds limit) override;
  std::string put(const std::string& key, const std::string& value, bool if_absent) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> try_get(const std::string& key) override;
  void give_up(const std::string& reason) override;
  std::optional<coordination::Answer> beat(std::size_t known_left, const BeatPlan::Attempt& attempt) override;
  void stop_beating() override { heartbeats_.close(); }

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
