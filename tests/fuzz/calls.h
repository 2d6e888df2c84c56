// Calls, frames and tensors that are made of a fuzzer's bytes.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "rpc/frame.h"
#include "rpc/server.h"
#include "tests/fuzz/numbers.h"

namespace cohort::fuzz {

// A call that keeps its answer and counts the answers. Thread-safe.
class Call final : public RpcCall {
 public:
  explicit Call(Frame request) : request_(std::move(request)) {}

  const Frame& request() const override { return request_; }
  void reply(const Frame& frame) override {
    const std::lock_guard lock(mutex_);
    ++answers_;
    reply_ = frame;
  }
  void fail(const std::exception&) override {
    const std::lock_guard lock(mutex_);
    ++answers_;
    failed_ = true;
  }
  bool cancelled() const override { return cancelled_; }

  void cancel() { cancelled_ = true; }
  int answers() const {
    const std::lock_guard lock(mutex_);
    return answers_;
  }
  bool failed() const {
    const std::lock_guard lock(mutex_);
    return failed_;
  }
  // Returns the reply once; nothing if there is none, or none yet.
  std::optional<Frame> take_reply() {
    const std::lock_guard lock(mutex_);
    return std::exchange(reply_, std::nullopt);
  }

 private:
  const Frame request_;
  mutable std::mutex mutex_;
  int answers_ = 0;
  bool failed_ = false;
  std::optional<Frame> reply_;
  std::atomic<bool> cancelled_ = false;
};

inline Frame frame_of(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

// Returns a frame with a right checksum, whose head has the first `head` bytes. What follows it are elements.
inline Frame framed(const std::string& bytes, std::size_t head) {
  const std::array<uint32_t, 2> numbers = {static_cast<uint32_t>(std::min(bytes.size(), head)),
                                           crc32c(std::as_bytes(std::span(bytes)))};
  return frame_of("CPS2" + std::string(reinterpret_cast<const char*>(numbers.data()), sizeof numbers) + bytes);
}

inline std::string bytes_of(Numbers& numbers) {
  std::string bytes(numbers.count(), '\0');
  constexpr int kBytes = 256;
  for (char& byte : bytes) byte = static_cast<char>(numbers.below(kBytes));
  return bytes;
}

// Returns a tensor as the call wants it, or another one.
inline torch::Tensor tensor(Numbers& numbers, std::vector<int64_t> sizes, torch::ScalarType dtype) {
  constexpr int kOdd = 8;
  if (numbers.below(kOdd) == 1) sizes = {numbers.below(4), numbers.below(5)};
  if (numbers.below(kOdd) == 1) dtype = numbers.below(2) == 0 ? torch::kLong : torch::kDouble;
  torch::Tensor made = torch::zeros(sizes, torch::kLong);
  for (int64_t i = 0; i < made.numel(); ++i) made.data_ptr<int64_t>()[i] = numbers.any();
  return made.to(dtype);
}

}  // namespace cohort::fuzz
