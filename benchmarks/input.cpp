// The input pipeline: rows of an MNIST-like table, shuffled, batched, split among two replicas.
#include <iostream>

#include "bench.h"
#include "cohort/distributed_dataset.h"

namespace cohort::bench {

void run_input(double seconds) {
  constexpr int64_t kBatch = 128;
  const Dataset rows =
      Dataset::from_tensor_slices(torch::rand({60'000, 28, 28}), torch::randint(10, {60'000}, torch::kLong));
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const DistributedDataset batches =
      strategy.distribute(rows.shuffle(10'000).repeat().batch(kBatch), {.prefetch_steps = 0});
  DistributedIterator iterator = batches.iterator();
  const double time = median_time(seconds, [&] { iterator.next(); });
  std::cout << "{\"input\": " << kBatch << ", \"us\": " << time * 1e6 << ", \"examples_per_second\": " << kBatch / time
            << "}\n";
}

}  // namespace cohort::bench
