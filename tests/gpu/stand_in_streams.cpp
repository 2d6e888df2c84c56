#include "tests/gpu/stand_in_streams.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "tests/gpu/stand_in_graph.h"
#include "tests/support/task_thread.h"

namespace cohort::gpu {

namespace {

std::atomic<int64_t> works = 0;
std::atomic<int64_t> delay_ms = 0;

// Operations of a card are done when they return, so that the thread which is to wait for a point does so itself.
class LatePoint final : public DevicePoint {
 public:
  explicit LatePoint(bool reached = false, bool captured = false) : reached_(reached), captured_(captured) {}

  void reach(std::exception_ptr error) const {
    const std::lock_guard lock(mutex_);
    reached_ = true;
    error_ = std::move(error);
    changed_.notify_all();
  }

  // A stream that waits for one that captures is drawn into the capture.
  void wait(torch::Device /*device*/) const override {
    require_not_captured("waited for");
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(30), [this] { return reached_; })) {
      throw std::runtime_error("stand-in card: a point was not reached within 30 s");
    }
    if (error_) std::rethrow_exception(error_);
  }
  bool reached() const override {
    require_not_captured("asked for");
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    return reached_;
  }

 private:
  void require_not_captured(const char* what) const {
    if (!captured_) return;
    throw std::runtime_error(std::string("stand-in card: operation not permitted: an event of a capture is ") + what);
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable bool reached_;
  bool captured_;
  mutable std::exception_ptr error_;
};

// One card's stream. After an error nothing more is done.
class LateStream {
 public:
  void push(std::function<void()> task) { thread_.push(std::move(task)); }
  void run(const std::function<void()>& task) {
    if (error_) return;
    try {
      task();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  const std::exception_ptr& error() const { return error_; }

 private:
  std::exception_ptr error_;    // the thread's own
  testing::TaskThread thread_;  // the last member: its tasks use the others
};

class LateStreams final : public SideStreams {
 public:
  explicit LateStreams(std::size_t cards) : streams_(cards) {}

  PointPtr mark(std::size_t /*device*/) const override {
    return std::make_shared<LatePoint>(/*reached=*/true, is_capturing());
  }

  void follow(std::size_t device, const PointPtr& point) override {
    LateStream& stream = streams_[device];
    stream.push([&stream, point] { stream.run([&] { point->wait(torch::kCPU); }); });
  }

  void begin(std::size_t device, std::function<void()> work, std::span<const torch::Tensor> /*tensors*/) override {
    LateStream& stream = streams_[device];
    stream.push([&stream, work = std::move(work)] {
      stream.run([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
        work();
        ++works;
      });
    });
  }

  PointPtr record(std::size_t device) override {
    const auto point = std::make_shared<LatePoint>();
    LateStream& stream = streams_[device];
    stream.push([&stream, point] { point->reach(stream.error()); });
    return point;
  }

 private:
  std::deque<LateStream> streams_;
};

}  // namespace

std::unique_ptr<SideStreams> make_late_streams(std::size_t cards) {
  return std::make_unique<LateStreams>(cards);
}

int64_t late_works() {
  return works;
}

Late::Late(std::chrono::milliseconds delay) {
  delay_ms = delay.count();
}

Late::~Late() {
  delay_ms = 0;
}

}  // namespace cohort::gpu
