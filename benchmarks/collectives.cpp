// The local all-reduce over two replicas beside a plain copy loop by two threads; the all-reduce over workers.
#include <cstring>
#include <functional>
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

namespace {

// Returns the median time of a call, in seconds. All workers have to make as many.
double time_of_calls(int rounds, const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < rounds + 2; ++i) {  // two to warm up
    const double start = now();
    call();
    if (i >= 2) times.push_back(now() - start);
  }
  return median(times);
}

}  // namespace

// The bytes are those of a worker's tensor; in an all-gather each worker brings its share of them.
void run_worker_collectives(const std::string& implementation) {
  const MultiWorkerMirroredStrategy strategy(
      {.communication = {.implementation = implementation}, .devices = {"/CPU:0"}});
  for (const auto& [bytes, rounds] :
       {std::pair{int64_t{4} << 10, 100}, {64 << 10, 100}, {1 << 20, 40}, {16 << 20, 10}, {64 << 20, 5}}) {
    const torch::Tensor tensor = torch::ones({bytes / 4});
    strategy.run([&, bytes = bytes, rounds = rounds](Replica& replica) {
      Communicator& group = replica.communicator();
      const auto report = [&](const char* call, const std::function<void()>& make) {
        const double time = time_of_calls(rounds, make);
        if (strategy.worker_rank() != 0) return;
        std::cout << "{\"call\": \"" << call << "\", \"bytes\": " << bytes << ", \"us\": " << time * 1e6 << "}\n";
      };
      torch::Tensor sum = tensor.clone();
      report("all_reduce", [&] { group.all_reduce({&sum, 1}, ReduceOp::kSum); });
      report("reduce_scatter", [&] { (void)group.reduce_scatter(tensor, ReduceOp::kSum); });
      const torch::Tensor share = tensor.narrow(0, 0, tensor.numel() / strategy.num_workers());
      report("all_gather", [&] { (void)group.all_gather(share); });
    });
  }
}

}  // namespace cohort::bench
