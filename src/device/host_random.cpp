#include "device/host_random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <torch/types.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace cohort {

at::Generator host_generator() {
  return at::globalContext().defaultGenerator(torch::kCPU);
}

at::Generator make_host_generator(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

namespace {

std::atomic<int> workers_here = 0;

// Swaps the numbers of a generator while it lives.
class OwnStream {
 public:
  OwnStream(at::CPUGeneratorImpl& generator, uint64_t stream) : generator_(generator) {
    const std::lock_guard lock(generator_.mutex_);
    constexpr uint64_t kOdd = 0x9e3779b97f4a7c15ULL;
    const uint64_t drawn = generator_.random64();
    outside_ = generator_.engine();
    next_float_ = generator_.next_float_normal_sample();
    next_double_ = generator_.next_double_normal_sample();
    at::mt19937 inside(drawn ^ ((stream + 1) * kOdd));
    at::mt19937_data_pod data = inside.data();
    data.seed_ = outside_.data().seed_;
    inside.set_data(data);
    generator_.set_engine(inside);
    generator_.set_next_float_normal_sample({});
    generator_.set_next_double_normal_sample({});
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() {
    const std::lock_guard lock(generator_.mutex_);
    generator_.set_engine(outside_);
    generator_.set_next_float_normal_sample(next_float_);
    generator_.set_next_double_normal_sample(next_double_);
  }

 private:
  at::CPUGeneratorImpl& generator_;
  at::mt19937 outside_;
  decltype(std::declval<at::CPUGeneratorImpl>().next_float_normal_sample()) next_float_;
  decltype(std::declval<at::CPUGeneratorImpl>().next_double_normal_sample()) next_double_;
};

}  // namespace

HostWorker::HostWorker() {
  ++workers_here;
}
HostWorker::~HostWorker() {
  --workers_here;
}

void with_own_host_stream(uint64_t stream, const std::function<void()>& fn) {
  if (workers_here > 1) return fn();
  at::Generator generator = host_generator();
  const OwnStream own(*at::check_generator<at::CPUGeneratorImpl>(generator), stream);
  fn();
}

}  // namespace cohort
