// The workers of a MultiWorkerMirroredStrategy as threads, on loopback.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cluster/free_port.h"
#include "cohort/cluster/multi_worker_mesh.h"
#include "cohort/cluster/multi_worker_strategy.h"
#include "tests/support/rank_errors.h"

namespace cohort::testing {

struct WorkersOptions {
  int workers = 2;
  int replicas = 1;  // of each
  CommunicationOptions communication = {.implementation = "ring", .timeout = std::chrono::seconds(20)};
  std::vector<std::vector<std::string>> devices = {};  // of each worker; CPUs
  ExchangeOptions exchange = {.threads_per_replica = 1, .timeout = std::chrono::seconds(30)};
  LocalSgdOptions local_sgd = {};
  ShardingOptions sharding = {};
  std::optional<DeviceMesh> mesh = std::nullopt;  // instead of devices
};

// A cluster of workers on loopback that knows its leader's address only.
inline ClusterSpec loopback_workers(int count) {
  std::vector<std::string> addresses(static_cast<std::size_t>(count));
  addresses[0] = "127.0.0.1:" + std::to_string(free_port("127.0.0.1"));
  return ClusterSpec(std::map<std::string, std::vector<std::string>>{{"worker", addresses}});
}

// Runs fn(rank, cluster) as each of so many workers, with what tells it of the cluster; rethrows the first failure in
// rank order.
inline void in_cluster(int workers, const std::function<void(int rank, const ClusterOptions& cluster)>& fn) {
  const ClusterSpec spec = loopback_workers(workers);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(workers));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < workers; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          fn(rank, {.resolver = std::make_shared<SimpleResolver>(
                        SimpleResolverOptions{.cluster = spec, .task = TaskId{"worker", rank}}),
                    .communication = {.implementation = "ring", .timeout = std::chrono::seconds(20)},
                    .membership = {.start_timeout = std::chrono::seconds(20),
                                   .heartbeat_timeout = std::chrono::seconds(10)}});
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
  }
  rethrow_first(errors);
}

// Runs fn(strategy) as each worker; rethrows the first failure in rank order.
inline void with_workers(const WorkersOptions& options,
                         const std::function<void(const MultiWorkerMirroredStrategy&)>& fn) {
  const std::vector<std::string> cpus = cpu_devices(options.replicas);
  in_cluster(options.workers, [&](int rank, const ClusterOptions& cluster) {
    fn(MultiWorkerMirroredStrategy({.resolver = cluster.resolver,
                                    .communication = options.communication,
                                    .membership = cluster.membership,
                                    .devices = options.mesh ? std::vector<std::string>()
                                               : options.devices.empty()
                                                   ? cpus
                                                   : options.devices[static_cast<std::size_t>(rank)],
                                    .exchange = options.exchange,
                                    .local_sgd = options.local_sgd,
                                    .sharding = options.sharding,
                                    .mesh = options.mesh}));
  });
}

// The steps of all workers, put together: what one device would have had to be given.
class StepRecorder {
 public:
  void add(std::size_t step, int replica, const Example& share) {
    const std::lock_guard lock(mutex_);
    if (steps_.size() <= step) steps_.resize(step + 1);
    steps_[step][replica] = share;
  }
  std::vector<Example> global_batches() const {
    std::vector<Example> batches;
    for (const auto& shares : steps_) {
      std::vector<torch::Tensor> x;
      std::vector<torch::Tensor> y;
      for (const auto& [replica, share] : shares) {
        x.push_back(share.x);
        y.push_back(share.y);
      }
      batches.push_back({.x = torch::cat(x), .y = torch::cat(y)});
    }
    return batches;
  }

 private:
  std::mutex mutex_;
  std::vector<std::map<int, Example>> steps_;
};

}  // namespace cohort::testing
