// Measures what a checkpoint of 1 GB costs the training that makes it, beside a copy of the same tensors.
#include <filesystem>
#include <iostream>

#include "bench.h"
#include "cohort/checkpoint.h"

namespace cohort::bench {

void run_checkpoint() {
  constexpr int64_t kTensors = 64;
  constexpr int64_t kValues = (1 << 30) / 4 / kTensors;
  CheckpointData data;
  for (int64_t i = 0; i < kTensors; ++i)
    data.tensors["model"].emplace_back("w" + std::to_string(i), torch::rand({kValues}));
  const std::filesystem::path folder = std::filesystem::current_path() / "cohort_bench_checkpoint";
  std::vector<double> copies;
  std::vector<double> stalls;
  std::vector<double> writes;
  {
    CheckpointManager manager(folder, {.max_to_keep = 1});
    for (int64_t step = 0; step < 5; ++step) {
      double begin = now();
      {
        std::vector<torch::Tensor> copy;
        for (const auto& [name, tensor] : data.tensors["model"]) copy.push_back(tensor.clone());
        copies.push_back(now() - begin);
      }
      begin = now();
      manager.save(step, data);
      stalls.push_back(now() - begin);
      manager.wait();
      writes.push_back(now() - begin);
    }
    manager.clear();
  }
  std::cout << "{\"checkpoint\": " << kTensors * kValues * 4 << ", \"copy_ms\": " << median(copies) * 1e3
            << ", \"stall_ms\": " << median(stalls) * 1e3 << ", \"write_ms\": " << median(writes) * 1e3 << "}\n";
}

}  // namespace cohort::bench
