#include "wings/etcd/cluster/etcd_run.h"

#include <algorithm>

namespace cohort {

EtcdRun::EtcdRun(const std::vector<TaskId>& tasks, std::string prefix) : prefix_(std::move(prefix)) {
  for (const TaskId& task : tasks) tasks_.push_back(task.to_string());
}

void EtcdRun::replace(const google::protobuf::RepeatedPtrField<etcd::KeyValue>& keys) {
  keys_.clear();
  for (const etcd::KeyValue& key : keys) {
    keys_[key.key().substr(prefix_.size())] = {.bytes = key.value(), .created = key.create_revision()};
  }
}

void EtcdRun::apply(const etcd::Event& event) {
  const std::string key = event.kv().key().substr(prefix_.size());
  if (event.type() == etcd::Event::DELETE) {
    keys_.erase(key);
  } else {
    keys_[key] = {.bytes = event.kv().value(), .created = event.kv().create_revision()};
  }
}

std::optional<std::string> EtcdRun::value(const std::string& key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? std::nullopt : std::optional(found->second.bytes);
}

std::optional<etcd::Entered> EtcdRun::entered(const std::string& task) const {
  const auto text = value("entered/" + task);
  etcd::Entered entered;
  if (!text || !entered.ParseFromString(*text)) return std::nullopt;
  return entered;
}

std::optional<EtcdRun::Loss> EtcdRun::loss() const {
  for (const std::string& task : tasks_) {
    const auto key = keys_.find("entered/" + task);
    if (key == keys_.end() || has("alive/" + task) || has("left/" + task)) continue;
    const auto who = entered(task);
    return Loss{.task = task, .process = who ? who->process() : "", .entered = key->second.created};
  }
  return std::nullopt;
}

std::vector<std::string> EtcdRun::not_entered() const {
  std::vector<std::string> missing;
  for (const std::string& task : tasks_) {
    if (!has("entered/" + task)) missing.push_back(task);
  }
  return missing;
}

std::vector<std::string> EtcdRun::gone() const {
  std::vector<std::string> names;
  for (const std::string& task : tasks_) {
    if (has("left/" + task)) names.push_back(task);
  }
  return names;
}

std::vector<std::string> EtcdRun::not_at(const std::string& barrier) const {
  std::vector<std::string> missing;
  const std::string there = "barrier/" + barrier + "/";
  for (const std::string& task : tasks_) {
    if (!has("left/" + task) && !has(there + task)) missing.push_back(task);
  }
  return missing;
}

std::vector<std::string> EtcdRun::infos() const {
  std::vector<std::string> infos;
  for (const std::string& task : tasks_) {
    const auto who = entered(task);
    infos.push_back(who ? who->info() : "");
  }
  return infos;
}

}  // namespace cohort
