// EtcdRun: what a task knows of one run of its job: the keys of the run, as etcd has told of them. It uses no network
// and no clock, so every task that knows the same keys comes to the same answers.
//
//   entered/TASK   an Entered; it stays when the task ends
//   alive/TASK     the incarnation of the process, under a lease that it renews: gone when nothing is heard of it
//   left/TASK      the task needs the others no more
//   barrier/NAME/TASK
//   failure        why the run has failed; the first one stands
//   contest/TASK   the incarnation of a second process that wants the place of the task
//   answer/TASK    the incarnation of the second process that the first one has answered
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cluster/cluster_spec.h"
#include "etcd.pb.h"

namespace cohort {

class EtcdRun {
 public:
  // A task that has entered, has not left, and whose lease has ended.
  struct Loss {
    std::string task;
    std::string process;
    int64_t entered = 0;  // the revision at which it has entered
  };

  // Makes a run without keys. All its keys begin with the prefix.
  EtcdRun(const std::vector<TaskId>& tasks, std::string prefix);

  const std::string& prefix() const { return prefix_; }

  // Takes these keys in place of all that were known.
  void replace(const google::protobuf::RepeatedPtrField<etcd::KeyValue>& keys);
  void apply(const etcd::Event& event);

  // Returns the value of a key, without the prefix, or nothing.
  std::optional<std::string> value(const std::string& key) const;
  // Returns how the task has entered, or nothing.
  std::optional<etcd::Entered> entered(const std::string& task) const;
  bool has(const std::string& key) const { return keys_.contains(key); }

  std::optional<std::string> failure() const { return value("failure"); }
  // Returns the first of the tasks that are lost.
  std::optional<Loss> loss() const;
  // Return names of tasks, in the order of the cluster.
  std::vector<std::string> not_entered() const;
  std::vector<std::string> gone() const;
  std::vector<std::string> not_at(const std::string& barrier) const;
  // Returns what each task tells of itself, when all have entered.
  std::vector<std::string> infos() const;
  bool all_left() const { return gone().size() == tasks_.size(); }
  // Returns whether nothing of the run goes on: it has failed, a task is lost, or all have left.
  bool over() const { return failure() || loss() || all_left(); }

 private:
  struct Value {
    std::string bytes;
    int64_t created = 0;
  };

  std::vector<std::string> tasks_;
  std::string prefix_;
  std::map<std::string, Value> keys_;
};

}  // namespace cohort
