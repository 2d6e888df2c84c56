// A cluster of parameter servers, workers and a chief as threads of a test: all of them run the same function.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cluster/free_port.h"
#include "cohort/cluster/cluster_coordinator.h"
#include "cohort/cluster/parameter_server_strategy.h"

namespace cohort::testing {

struct ServerClusterOptions {
  int servers = 1;
  int workers = 1;
  ParameterServerOptions strategy = {};  // but the resolver
};

// The program that every task runs, with the options for its strategy.
using TaskProgram = std::function<void(const ParameterServerOptions& options)>;

class ServerCluster {
 public:
  explicit ServerCluster(const ServerClusterOptions& options) : options_(options) {
    std::map<std::string, std::vector<std::string>> jobs;
    std::vector<int> ports = free_ports("127.0.0.1", 1 + options.servers + options.workers);
    const auto add = [&](const std::string& job, int count) {
      for (int i = 0; i < count; ++i) {
        jobs[job].push_back("127.0.0.1:" + std::to_string(ports.back()));
        ports.pop_back();
      }
    };
    add("chief", 1);
    add("ps", options.servers);
    add("worker", options.workers);
    spec_ = ClusterSpec(jobs);
  }

  ParameterServerOptions options_for(const TaskId& task) const {
    ParameterServerOptions options = options_.strategy;
    options.resolver = std::make_shared<SimpleResolver>(SimpleResolverOptions{.cluster = spec_, .task = task});
    options.coordinator_timeout = std::chrono::seconds(30);
    options.devices = options.devices.empty() ? std::vector<std::string>{"/CPU:0"} : options.devices;
    return options;
  }

  // Servers and workers as threads; returns when the chief, this thread, and all of them are through. An exception of
  // one of them comes out, the chief's first.
  void run(const TaskProgram& program) const {
    std::mutex mutex;
    std::exception_ptr error;
    {
      std::vector<std::jthread> threads;
      for (const char* job : {"ps", "worker"}) {
        for (int i = 0; i < spec_.num_tasks(job); ++i) {
          threads.emplace_back([&, task = TaskId{job, i}] {
            try {
              program(options_for(task));
            } catch (...) {
              const std::lock_guard lock(mutex);
              if (!error) error = std::current_exception();
            }
          });
        }
      }
      try {
        program(options_for({"chief", 0}));
      } catch (...) {
        const std::lock_guard lock(mutex);
        error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
  }

 private:
  ServerClusterOptions options_;
  ClusterSpec spec_;
};

}  // namespace cohort::testing
