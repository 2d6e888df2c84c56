// Training steps: their time.
#include <torch/cuda.h>

#include <iostream>

#include "bench.h"
#include "cohort/cluster/multi_worker_strategy.h"
#include "step.h"

namespace cohort::bench {

void run_step(const std::string& model, const StepDevices& devices, double seconds) {
  torch::manual_seed(1);
  Step step(make_strategy(devices, model), model,
            {.as_function = !devices.xla_plugin.empty(), .as_graph = devices.graphs});
  step.report(model, times_of(seconds, [&] {
                const torch::Tensor loss = step();
                // Both wait for the whole step, of which the loss is a result.
                if (!devices.xla_plugin.empty()) (void)loss.cpu();
                for (int i = 0; devices.gpus && i < devices.replicas; ++i) torch::cuda::synchronize(i);
              }));
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
