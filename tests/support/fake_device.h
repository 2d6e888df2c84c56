// A device without a card: its memory is the host's, but copies to it are made late, by a thread for each stream. A
// reader of a copy that has not waited for its event reads what was there before, and the thread sanitizer says so.
#pragma once

#include <ATen/Functions.h>
#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "device/backend.h"
#include "device/host_memory.h"
#include "device/host_random.h"
#include "tests/support/task_thread.h"

namespace cohort::testing {

// Where the copies of a fake device wait while a test holds them up.
class FakeGate {
 public:
  void close() { set(false); }
  void open() { set(true); }
  void pass() {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::seconds(30), [this] { return open_; })) return;
    throw std::runtime_error("fake device: copies were held up for 30 s");
  }

 private:
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
};

// The counts that the tests want to know of a fake device.
struct FakeDeviceCounts {
  std::atomic<int> copies_begun = 0;
  std::atomic<int> copies_done = 0;
  std::atomic<int> page_locks = 0;
  std::atomic<int> waits = 0;
  std::atomic<int> flushes = 0;
};

class FakeEvent final : public DeviceEvent {
 public:
  explicit FakeEvent(FakeDeviceCounts& counts) : counts_(counts) {}

  void reach() {
    const std::lock_guard lock(mutex_);
    reached_ = true;
    changed_.notify_all();
  }

  // The calling thread is what computes on this device, so it waits itself.
  void wait(std::span<const torch::Tensor> /*tensors*/) const override {
    ++counts_.waits;
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::seconds(30), [this] { return reached_; })) return;
    throw std::runtime_error("fake device: an event was not reached within 30 s");
  }
  bool reached() const override {
    const std::lock_guard lock(mutex_);
    return reached_;
  }

 private:
  FakeDeviceCounts& counts_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool reached_ = false;
};

class FakeStream final : public DeviceStream {
 public:
  FakeStream(FakeDeviceCounts& counts, FakeGate& gate, std::chrono::milliseconds delay)
      : counts_(counts), gate_(gate), delay_(delay) {}

  torch::Tensor copy(const torch::Tensor& host) override {
    const torch::Tensor source = host.contiguous();
    const torch::Tensor made = at::full_like(source, 99);
    fetch(source, made);
    return made;
  }

  torch::Tensor make_staging(int64_t bytes) override {
    ++counts_.page_locks;
    return at::empty({bytes}, at::TensorOptions(torch::kByte));
  }

  std::shared_ptr<const DeviceEvent> record() override {
    auto event = std::make_shared<FakeEvent>(counts_);
    thread_.push([event] { event->reach(); });
    return event;
  }

  void fetch(const torch::Tensor& tensor, const torch::Tensor& host) override {
    ++counts_.copies_begun;
    thread_.push([this, tensor, host] {
      gate_.pass();
      std::this_thread::sleep_for(delay_);
      const std::span<std::byte> to = host_bytes(host);
      const std::span<const std::byte> from = host_bytes(tensor);
      // A loop, because the thread sanitizer does not look into memcpy() as the tests run it.
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i];
      ++counts_.copies_done;
    });
  }

  void synchronize() override { record()->wait({}); }

 private:
  FakeDeviceCounts& counts_;
  FakeGate& gate_;
  std::chrono::milliseconds delay_;
  TaskThread thread_;  // the last member: its tasks use the others
};

// Outlives the strategies that use it. Give it in StrategyPlan::backends.
class FakeDevice final : public DeviceBackend {
 public:
  explicit FakeDevice(std::chrono::milliseconds delay) : delay_(delay) {}

  FakeDeviceCounts& counts() const { return counts_; }
  FakeGate& gate() const { return gate_; }

  std::string_view type() const override { return "FAKE"; }
  torch::DeviceType torch_type() const override { return torch::kCPU; }
  int count() const override { return 1; }
  torch::Device device(int /*index*/) const override { return torch::kCPU; }
  bool is_host() const override { return false; }
  bool trains_in(torch::ScalarType /*dtype*/) const override { return true; }
  MemoryInfo memory(torch::Device /*device*/) const override { return {}; }
  void prepare() const override {}
  at::Generator make_generator(torch::Device /*device*/) const override {
    return make_host_generator(host_generator().current_seed());
  }
  std::unique_ptr<DeviceStream> make_stream(torch::Device /*device*/) const override {
    return std::make_unique<FakeStream>(counts_, gate_, delay_);
  }
  bool records() const override { return true; }
  void flush(torch::Device /*device*/) const override { ++counts_.flushes; }

 private:
  std::chrono::milliseconds delay_;
  mutable FakeDeviceCounts counts_;
  mutable FakeGate gate_;
};

}  // namespace cohort::testing
