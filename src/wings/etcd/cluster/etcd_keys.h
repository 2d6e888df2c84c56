// EtcdKeys: the names of a job's keys in etcd, and transactions on them.
//
//   /cohort/JOB/run        the number of the present run
//   /cohort/JOB/N/c/...    what the tasks of run N know of each other (etcd_run.h)
//   /cohort/JOB/N/v/...    the values that they keep
#pragma once

#include <cstdint>
#include <string>

#include "etcd.pb.h"

namespace cohort {

class EtcdKeys {
 public:
  explicit EtcdKeys(const std::string& job) : job_("/cohort/" + job + "/") {}

  std::string run() const { return job_ + "run"; }
  // Returns the prefix of all that belongs to a run.
  std::string all_of(int64_t run) const { return job_ + std::to_string(run) + "/"; }
  std::string control(int64_t run) const { return all_of(run) + "c/"; }
  std::string values(int64_t run) const { return all_of(run) + "v/"; }

 private:
  std::string job_;
};

// A transaction: if all comparisons hold, it does what was added; otherwise it reads what was asked for.
class EtcdTransaction {
 public:
  EtcdTransaction& if_created_at(const std::string& key, int64_t revision);  // 0: the key is absent
  EtcdTransaction& if_written_at(const std::string& key, int64_t revision);
  EtcdTransaction& put(const std::string& key, const std::string& value, int64_t lease = 0);
  EtcdTransaction& remove(const std::string& key);
  EtcdTransaction& remove_all(const std::string& prefix);
  EtcdTransaction& else_read(const std::string& key);

  const etcd::TxnRequest& request() const { return request_; }

 private:
  etcd::TxnRequest request_;
};

}  // namespace cohort
