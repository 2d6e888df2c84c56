// CoordinationClient: a task's end of the coordination service. Calls that wait do so in slices, each with a deadline
// of its own, and say every `report_interval` who is missing.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cohort/cluster.h"
#include "coordination.grpc.pb.h"

namespace cohort {

class CoordinationClient {
 public:
  // `leader` names the other end in messages.
  CoordinationClient(std::shared_ptr<grpc::Channel> channel, const TaskId& task, std::string leader,
                     const MembershipOptions& options);

  // Enters the group; what all its tasks told of themselves.
  std::vector<std::string> enter(const std::string& cluster);
  void barrier(const std::string& name, std::chrono::milliseconds timeout);
  void fail(const std::string& reason);
  void leave();
  std::string put(const std::string& key, const std::string& value, bool if_absent);
  std::string get(const std::string& key, std::chrono::milliseconds timeout);
  std::optional<std::string> try_get(const std::string& key);

  // The group has failed: calls under way and to come end with Unavailable for this reason. Not leave().
  void give_up(const std::string& reason);

  // One heartbeat, held by the leader for up to `wait`. `context` is the caller's, to cancel it.
  grpc::Status beat(grpc::ClientContext& context, std::size_t known_left, std::chrono::milliseconds wait,
                    std::chrono::milliseconds limit, std::vector<std::string>& left);

 private:
  template <typename Call>
  grpc::Status attempt(std::chrono::milliseconds limit, bool wait_for_ready, const Call& call);
  template <typename Call>
  void once(const std::string& what, const Call& call);
  template <typename Step>
  void until_complete(const std::string& what, std::chrono::milliseconds timeout, const Step& step);
  [[noreturn]] void raise(const std::string& what, const grpc::Status& status) const;
  coordination::Task self() const;

  std::unique_ptr<coordination::Coordination::Stub> stub_;
  TaskId task_;
  uint64_t incarnation_;
  std::string leader_;
  MembershipOptions options_;
  std::mutex mutex_;
  std::optional<std::string> given_up_;
  std::set<grpc::ClientContext*> under_way_;
};

// A channel to the leader's address.
std::shared_ptr<grpc::Channel> connect_to_leader(const std::string& address, const SecurityOptions& security);

}  // namespace cohort
