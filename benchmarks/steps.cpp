// Training steps: their time.
#include <torch/cuda.h>

#include <iostream>

#include "bench.h"
#include "cohort/cluster/multi_worker_strategy.h"
#include "step.h"

namespace cohort::bench {

void run_step(const std::string& model, const StepDevices& devices, double seconds) {
  torch::manual_seed(1);
  Step step(make_strategy(devices, model), model, !devices.xla_plugin.empty());
  step.report(model, times_of(seconds, [&] {
                const torch::Tensor loss = step();
                // Both wait for the whole step, of which the loss is a result.
                if (!devices.xla_plugin.empty()) (void)loss.cpu();
                for (int i = 0; devices.gpus && i < devices.replicas; ++i) torch::cuda::synchronize(i);
              }));
}

// All workers have to make as many steps: the first one says how many.
void run_worker_step(const std::string& model, double seconds, const WorkerOptions& worker) {
  torch::manual_seed(1);
  const MultiWorkerMirroredStrategy strategy(
      {.communication = {.overlap = worker.overlap, .shared_memory = worker.shared_memory},
       .devices = {"/CPU:0"},
       .sharding = {.stage = worker.sharding_stage}});
  Step step(strategy, model);
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
  const auto membership = strategy.membership();
  int64_t steps = static_cast<int64_t>(seconds / trial) + 5;
  if (membership && strategy.worker_rank() == 0) membership->put("steps", std::to_string(steps));
  if (membership) steps = std::stoll(membership->get("steps", wait));
  const std::vector<double> times = timed(steps);
  if (strategy.worker_rank() == 0) step.report(model, times, hidden);
}

// Returns when all workers are there and have exchanged something.
void run_worker_start() {
  const MultiWorkerMirroredStrategy strategy({.devices = {"/CPU:0"}});
  const auto ones = strategy.run([](Replica&) { return torch::ones({1}); });
  const double workers = strategy.reduce(ReduceOp::kSum, ones).item<double>();
  if (strategy.worker_rank() == 0) std::cout << "{\"worker_start\": " << workers << "}\n";
}

void run_empty(int replicas, double seconds) {
  const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
  constexpr int kRuns = 100;
  const double time = median_time(seconds, [&] {
    for (int i = 0; i < kRuns; ++i) strategy.run([](Replica&) {});
  });
  std::cout << "{\"empty_run\": " << replicas << ", \"us\": " << time / kRuns * 1e6 << "}\n";
}

}  // namespace cohort::bench
