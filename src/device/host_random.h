// Random numbers of the host, which data and initial values are drawn from whatever the replicas compute on.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <functional>

namespace cohort {

// Returns LibTorch's own generator of the host, which torch::manual_seed() seeds.
at::Generator host_generator();

// Makes a generator of the host's with that seed. Cheap enough for one an example.
at::Generator make_host_generator(uint64_t seed);

// Counts a worker of a cluster that lives in this process. Several share LibTorch's own generator, as their threads do.
class HostWorker {
 public:
  HostWorker();
  HostWorker(const HostWorker&) = delete;
  HostWorker& operator=(const HostWorker&) = delete;
  ~HostWorker();
};

// Runs fn() with LibTorch's own generator of the host at the beginning of one of the streams of the number that it
// draws next; afterwards it is behind that number. So processes with the same seed and different streams draw different
// numbers within fn() and the same ones outside, however many fn() takes. current_seed() stays. Where the process has
// several workers, fn() runs with the generator as it is.
void with_own_host_stream(uint64_t stream, const std::function<void()>& fn);

}  // namespace cohort
