// Training steps of one of several workers: their time, and on request what a worker sends and waits for.
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include "bench.h"
#include "cohort/cluster/multi_worker_mesh.h"
#include "cohort/cluster/multi_worker_strategy.h"
#include "cohort/trace.h"
#include "step.h"

namespace cohort::bench {

namespace {

constexpr int kWorkers = 2;

// A worker's strategy, and its end of the group.
struct Worker {
  Strategy strategy;
  int rank = 0;
  std::shared_ptr<Membership> membership;
  std::vector<int64_t> partition = {};  // the parts of the input in each dimension; empty: it is whole
};

template <typename WorkerStrategy>
Worker worker_of(const WorkerStrategy& strategy, std::vector<int64_t> partition = {}) {
  return {strategy, strategy.worker_rank(), strategy.membership(), std::move(partition)};
}

Worker make_worker(const std::string& model, const WorkerOptions& options) {
  if (options.axis.empty()) {
    return worker_of(MultiWorkerMirroredStrategy(
        {.communication = {.overlap = options.overlap, .shared_memory = options.shared_memory},
         .devices = {"/CPU:0"},
         .sharding = {.stage = options.sharding_stage}}));
  }
  const DeviceMesh mesh({kWorkers}, {options.axis}, {"/job:worker/task:0/CPU:0", "/job:worker/task:1/CPU:0"});
  const ClusterOptions cluster{.communication = {.shared_memory = options.shared_memory}};
  if (options.axis == "model") {
    return worker_of(MultiWorkerMeshStrategy(mesh, {.layout = layouts::transformer(transformer(model))}, cluster));
  }
  std::vector<int64_t> partition = {1, kWorkers};
  if (options.axis == "space") partition = {1, 1, kWorkers, 1};
  return worker_of(MultiWorkerMeshStrategy(mesh, {.input_partition_dims = partition}, cluster), partition);
}

// Returns the bytes that this process's network has sent through an interface.
int64_t bytes_sent(const std::string& interface) {
  std::ifstream file("/proc/net/dev");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.find(interface) >= colon) continue;
    std::istringstream numbers(line.substr(colon + 1));
    int64_t number = 0;
    for (int column = 0; column <= 8; ++column) numbers >> number;  // the ninth is what was sent
    return number;
  }
  throw std::runtime_error("/proc/net/dev has no interface " + interface);
}

// Prints the bytes that a step sends, and the time for which its replica waits for the others.
void report_traffic(Step& step, const Worker& worker, const std::string& interface) {
  constexpr int kSteps = 5;
  const int64_t before = bytes_sent(interface);
  Trace trace({.file = {}});
  for (int i = 0; i < kSteps; ++i) step();
  const TraceSummary summary = trace.finish();
  const int64_t after = bytes_sent(interface);
  double waited = 0.0;
  for (const auto& [thread, seconds_of] : summary.seconds_of) {
    const auto own = seconds_of.find("communication");
    if (thread.starts_with("replica") && own != seconds_of.end()) waited += own->second;
  }
  std::cout << "{\"sent_bytes\": " << (after - before) / kSteps << ", \"waited_ms\": " << waited / kSteps * 1e3
            << ", \"traced_ms\": " << summary.seconds / kSteps * 1e3 << ", \"parameters\": " << step.parameters()
            << "}\n";
}

}  // namespace

// All workers have to make as many steps: the first one says how many.
void run_worker_step(const std::string& model, double seconds, const WorkerOptions& options) {
  torch::manual_seed(1);
  name_traced_thread("replica 0");
  const Worker worker = make_worker(model, options);
  Step step(worker.strategy, model, {.partition = worker.partition});
  std::vector<double> hidden;
  const auto timed = [&](int64_t steps) {
    std::vector<double> times;
    hidden.clear();
    for (int64_t i = 0; i < steps; ++i) {
      const double start = now();
      step();
      times.push_back(now() - start);
      hidden.push_back(step.hidden());
    }
    return times;
  };
  timed(3);
  const double trial = median(timed(5));
  const auto wait = std::chrono::minutes(1);
  int64_t steps = static_cast<int64_t>(seconds / trial) + 5;
  if (worker.membership && worker.rank == 0) worker.membership->put("steps", std::to_string(steps));
  if (worker.membership) steps = std::stoll(worker.membership->get("steps", wait));
  const std::vector<double> times = timed(steps);
  if (worker.rank == 0) step.report(model, times, hidden);
  if (!options.interface.empty()) report_traffic(step, worker, options.interface);
}

}  // namespace cohort::bench
