// Training steps under MirroredStrategy on CPU replicas, through the public interface.
#include <iostream>

#include "bench.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"

namespace cohort::bench {

void run_step(const std::string& model, int replicas, int threads, double seconds) {
  torch::manual_seed(1);
  const MirroredStrategy strategy({.devices = cpu_devices(replicas), .exchange = {.threads_per_replica = threads}});
  auto net = strategy.mirror([&] { return make_model(model); });
  auto adam = strategy.optimizer(net, Adam({.learning_rate = 1e-3}));
  const int64_t size = batch_per_replica(model);
  std::vector<Example> shares;
  for (int i = 0; i < replicas; ++i) {
    shares.push_back({.x = make_input(model, size), .y = torch::randint(kClasses, {size}, torch::kLong)});
  }
  const PerReplica<Example> batch(std::move(shares));
  const double time = median_time(seconds, [&] {
    strategy.run(
        [&](Replica& replica, const Example& share) {
          const auto each = torch::nn::functional::cross_entropy(
              net[replica]->forward(share.x), share.y,
              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
          adam[replica].minimize(replica.global_mean(each));
        },
        batch);
  });
  std::cout << "{\"step\": \"" << model << "\", \"replicas\": " << replicas << ", \"us\": " << time * 1e6
            << ", \"samples_per_second\": " << static_cast<double>(size * replicas) / time << "}\n";
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
