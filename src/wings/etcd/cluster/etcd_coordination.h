// EtcdCoordination: a task's end of a membership that etcd keeps. A task is alive while its lease is; whoever sees a
// lease end says so, and the first word stands. Every write is a transaction that holds only while the writer's lease
// does, so a task that was taken for lost changes nothing any more.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/wait_reporting.h"
#include "cluster/coordination/client.h"
#include "wings/etcd/cluster/etcd_keys.h"
#include "wings/etcd/cluster/etcd_mirror.h"
#include "wings/etcd/cluster/etcd_run.h"
#include "wings/etcd/rpc/etcd_client.h"

namespace cohort {

class EtcdCoordination final : public CoordinationEnd {
 public:
  // `options.coordination` is the address of etcd. Errors as of parse_etcd_address() and EtcdClient.
  EtcdCoordination(const ClusterSpec& cluster, const TaskId& task, const MembershipOptions& options);
  EtcdCoordination(const EtcdCoordination&) = delete;
  EtcdCoordination& operator=(const EtcdCoordination&) = delete;
  ~EtcdCoordination() override;

  std::string name() const override { return calls_.name(); }
  std::vector<std::string> enter(const std::string& cluster) override;
  void barrier(const std::string& name, std::chrono::milliseconds timeout) override;
  void fail(const std::string& reason) override;
  void leave(std::chrono::milliseconds limit) override;
  std::string put(const std::string& key, const std::string& value, bool if_absent) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> try_get(const std::string& key) override;
  void give_up(const std::string& reason) override;
  std::optional<coordination::Answer> beat(std::size_t known_left, const BeatPlan::Attempt& attempt) override;
  void stop_beating() override;

 private:
  // The run that this task has entered, and its place there.
  struct Place {
    int64_t run = 0;
    int64_t lease = 0;
    int64_t created = 0;  // the revision of its key alive/TASK, which no other process can have
  };
  // The present run of the job.
  struct Present {
    int64_t run = 0;
    int64_t written = 0;  // the revision of the key that has its number
  };

  // Entering a run.
  Present present(EtcdClient& client, std::chrono::milliseconds limit) const;
  void begin_next(EtcdClient& client, const Present& before, bool all_left, std::chrono::milliseconds limit) const;
  EtcdRun read(EtcdClient& client, int64_t run, std::chrono::milliseconds limit) const;
  std::string claim(const std::string& cluster, const Deadline& deadline);
  std::string take_place(const std::string& cluster, const Present& now, const Deadline& deadline);
  std::optional<std::string> obstacle(const EtcdRun& run, const std::string& cluster, const Deadline& deadline);
  bool contest(const EtcdRun& run, const std::string& task, const Deadline& deadline);
  std::string await_others(const Deadline& deadline, std::optional<std::string>& failed);
  void withdraw(std::chrono::milliseconds limit);

  // A member's calls.
  std::string key(const std::string& name) const { return keys_.control(place_->run) + name; }
  EtcdTransaction fenced() const;
  etcd::TxnResponse write(EtcdTransaction transaction, const std::string& what);
  void answer_contest(const EtcdRun& run);
  std::optional<std::string> failure_of(const EtcdRun& run);
  std::string settle(const std::string& reason);
  void require_well(const std::string& what);
  std::optional<std::string> given_up() const;
  std::string own_loss() const;
  std::string loss_text(const std::string& task, const std::string& process) const;
  WaitOptions waiting(const std::string& what, std::chrono::milliseconds limit) const;
  [[noreturn]] void raise_unreachable(const std::string& what, const std::exception& error) const;

  const std::vector<TaskId> tasks_;
  const std::string me_;  // the name of this task
  const uint64_t incarnation_;
  const MembershipOptions options_;
  EtcdKeys keys_;
  // There are three clients because they end at different times: the calls when the group fails, the heartbeats when
  // the task leaves, and the farewell not at all.
  EtcdClient calls_;
  EtcdClient heartbeats_;
  EtcdClient last_word_;
  std::optional<Place> place_;
  std::unique_ptr<EtcdMirror> mirror_;  // of the run that this task has entered
  mutable std::mutex mutex_;
  std::optional<std::string> given_up_;
};

}  // namespace cohort
