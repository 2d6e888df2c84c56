// Membership: the tasks of a cluster finding each other, and noticing when one is gone.
//
// One task, the coordination leader (ps 0, else the chief, else worker 0), serves on its address of the cluster; all
// others connect to it and to nobody else. Every task tells it that it is alive; when one is silent for too long, all
// others hear its name at once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cluster.h"

namespace cohort {

// Mutual TLS between tasks: all three files (PEM), or a secret that all tasks have, or nothing. Without, whoever
// reaches a task's port can speak to it.
struct SecurityOptions {
  std::string ca_file = "";           // who signed the certificates that are accepted
  std::string certificate_file = "";  // this task's
  std::string key_file = "";          // its private key
  std::string server_name = "";       // what the leader's certificate is issued to; empty: the host of its address
  // In place of the files: a file of 16 bytes or more (surrounding white space aside), the same for all tasks, such as
  // `head -c 32 /dev/urandom | base64` makes.
  std::string secret_file = "";

  // Returns whether anything was given.
  bool given() const { return !ca_file.empty() || !secret_file.empty(); }
};

struct MembershipOptions {
  // For all tasks to be there.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
  // How often those who wait say who is missing.
  std::chrono::milliseconds report_interval = std::chrono::seconds(5);
  // A task that is silent for so long is lost. At least 100 ms.
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(5);
  // How long the leader stays at the end for tasks that have not left.
  std::chrono::milliseconds leave_timeout = std::chrono::minutes(1);
  // What the other tasks are to know of this one: Membership::infos().
  std::string info = "";
  SecurityOptions security = {};  // encryption of the membership's calls; by default none
};

// Thread-safe. Once the group has failed, every call throws Unavailable with the first reason; the program has to be
// started again.
class Membership {
 public:
  // Enters the group and returns when it is complete. DeadlineExceeded names who is missing; FailedPrecondition:
  // another process is this task already, or was started with another cluster; Unavailable: the leader's address cannot
  // be bound.
  Membership(const ClusterSpec& cluster, const TaskId& task, const MembershipOptions& options = {});
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  // Leaves. The leader stays until the others have left, for leave_timeout at most.
  ~Membership();

  // Returns the cluster that the group is made of.
  const ClusterSpec& cluster() const;
  // Returns this process's task.
  const TaskId& task() const;
  // All members (chief, workers, ps), in that order, and what each told of itself.
  const std::vector<TaskId>& tasks() const;
  // Returns what each member told of itself (MembershipOptions::info), in the order of tasks().
  const std::vector<std::string>& infos() const;

  // Why the group has failed; nothing while it is well.
  std::optional<std::string> failure() const;
  // The failure that explains an error which the caller met, such as a broken connection: waits for the leader's
  // verdict for a little more than heartbeat_timeout.
  std::optional<std::string> await_failure() const;
  // Calls back, once, when the group fails (now, if it has), from another thread. Call before sharing this object.
  void on_failure(std::function<void(const std::string& reason)> callback);
  // Ends the group for all, with this reason; nothing when it has failed before.
  void fail(const std::string& reason);
  // Throws Unavailable when the group has failed or one of its tasks has left.
  void require_whole() const;

  // Returns when every task that has not left has called it with this name, as often as this task. DeadlineExceeded
  // names the missing.
  void barrier(const std::string& name, std::chrono::milliseconds timeout);

  // Values that all tasks see. put returns what the key has now, which is another task's value when `if_absent`; get
  // waits for the key (DeadlineExceeded).
  std::string put(const std::string& key, const std::string& value, bool if_absent = false);
  // Waits for the key and returns its value.
  std::string get(const std::string& key, std::chrono::milliseconds timeout) const;
  // Returns the value that the key has now, or nothing.
  std::optional<std::string> try_get(const std::string& key) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
