// The local all-reduce over two replicas beside a plain copy loop by two threads; the all-reduce over workers.
#include <cstring>
#include <iostream>
#include <thread>

#include "bench.h"
#include "cohort/cluster/multi_worker_strategy.h"

namespace cohort::bench {

namespace {

// Bytes a second that two threads read and write with memcpy, each its own half.
double copy_bandwidth(int64_t bytes, double seconds) {
  const torch::Tensor from = torch::ones({bytes}, torch::kByte);
  const torch::Tensor to = torch::ones({bytes}, torch::kByte);
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const double time = median_time(seconds, [&] {
    strategy.run([&](Replica& replica) {
      const int64_t half = bytes / 2;
      std::memcpy(to.data_ptr<uint8_t>() + replica.id() * half, from.data_ptr<uint8_t>() + replica.id() * half,
                  static_cast<std::size_t>(half));
    });
  });
  return 2.0 * static_cast<double>(bytes) / time;
}

}  // namespace

void run_all_reduce(double seconds) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  for (int64_t bytes = 4 << 10; bytes <= 256 << 20; bytes *= 4) {
    std::vector<torch::Tensor> values{torch::ones({bytes / 4}), torch::ones({bytes / 4})};
    constexpr int kRounds = 4;
    const double time = median_time(seconds,
                                    [&] {
                                      strategy.run([&](Replica& replica) {
                                        for (int i = 0; i < kRounds; ++i) {
                                          replica.communicator().all_reduce(
                                              {&values[static_cast<std::size_t>(replica.id())], 1}, ReduceOp::kMean);
                                        }
                                      });
                                    }) /
                        kRounds;
    // Every byte of both replicas is read once and written once.
    const double moved = 4.0 * static_cast<double>(bytes) / time;
    std::cout << "{\"all_reduce\": " << bytes << ", \"us\": " << time * 1e6 << ", \"gb_per_second\": " << moved / 1e9
              << ", \"copy_gb_per_second\": " << copy_bandwidth(2 * bytes, seconds) / 1e9 << "}\n";
  }
}

// All workers have to make as many.
void run_worker_all_reduce(const std::string& algorithm) {
  const MultiWorkerMirroredStrategy strategy({.communication = {.algorithm = algorithm}, .devices = {"/CPU:0"}});
  for (const auto& [bytes, rounds] : {std::pair{4 << 10, 60}, {64 << 10, 60}, {1 << 20, 30}, {16 << 20, 8}}) {
    torch::Tensor value = torch::ones({bytes / 4});
    std::vector<double> times;
    strategy.run([&, rounds = rounds](Replica& replica) {
      for (int i = 0; i < rounds; ++i) {
        const double start = now();
        replica.communicator().all_reduce({&value, 1}, ReduceOp::kMean);
        times.push_back(now() - start);
      }
    });
    if (strategy.worker_rank() != 0) continue;
    std::cout << "{\"worker_all_reduce\": " << bytes << ", \"workers\": " << strategy.num_workers()
              << ", \"us\": " << median(times) * 1e6 << "}\n";
  }
}

}  // namespace cohort::bench
