#include <torch/types.h>

#include <iostream>

#include "cohort/strategy.h"

int main() {
  const cohort::MirroredStrategy strategy({.devices = cohort::cpu_devices(2)});
  const auto values = strategy.run([](cohort::Replica& replica) { return torch::full({}, replica.id() + 1.0); });
  std::cout << strategy.num_replicas_in_sync() << " replicas, sum "
            << strategy.reduce(cohort::ReduceOp::kSum, values).item<double>() << "\n";
}
