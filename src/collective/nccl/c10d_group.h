// A DeviceGroup made of one of LibTorch's process groups (c10d).
#pragma once

#include <ATen/Functions.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/fail.h"
#include "base/libtorch_compat.h"
#include "base/log.h"
#include "collective/process/device_group.h"

namespace cohort {

// How the ranks of a group find each other.
struct GroupMeeting {
  int rank = 0;
  int size = 1;
  std::string prefix;  // of this group's keys
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  std::function<void(const std::string& key, const std::string& value)> put = {};
  // Waits for the key.
  std::function<std::string(const std::string& key, std::chrono::milliseconds timeout)> get = {};
  // Does not wait for it.
  std::function<std::optional<std::string>(const std::string& key)> find = {};
};

// What LibTorch's groups ask of a store, which is to be told the addresses of their ranks. From any thread: NCCL's
// group has one that asks every second whether another rank has put a sign of failure there.
class MeetingStore final : public compat::Cloneable<c10d::Store> {
 public:
  explicit MeetingStore(GroupMeeting meeting) : Cloneable(meeting.timeout), meeting_(std::move(meeting)) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<MeetingStore>(meeting_); }

  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    meeting_.put(meeting_.prefix + key, std::string(value.begin(), value.end()));
  }
  std::vector<uint8_t> get(const std::string& key) override { return get(key, timeout_); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    for (const std::string& key : keys) (void)get(key, timeout);
  }
  // Never throws: LibTorch asks from a thread in which nobody catches.
  bool check(const std::vector<std::string>& keys) override {
    try {
      return std::all_of(keys.begin(), keys.end(),
                         [&](const std::string& key) { return meeting_.find(meeting_.prefix + key).has_value(); });
    } catch (const std::exception&) {
      return false;
    }
  }
  int64_t add(const std::string& /*key*/, int64_t /*value*/) override { refuse("add"); }
  bool deleteKey(const std::string& /*key*/) override { refuse("deleteKey"); }
  int64_t getNumKeys() override { refuse("getNumKeys"); }

 private:
  std::vector<uint8_t> get(const std::string& key, std::chrono::milliseconds timeout) const {
    const std::string value = meeting_.get(meeting_.prefix + key, timeout);
    return {value.begin(), value.end()};
  }
  [[noreturn]] static void refuse(const char* what) {
    fail<Unimplemented>("[collective] LibTorch asks the workers' store for ", what, ", which it does not have");
  }

  GroupMeeting meeting_;
};

// Group: c10d::ProcessGroupNCCL; c10d::ProcessGroupGloo in the tests.
template <typename Group>
class C10dGroup final : public DeviceGroup {
 public:
  C10dGroup(std::string_view name, torch::DeviceType devices, c10::intrusive_ptr<Group> group,
            std::chrono::milliseconds timeout)
      : name_(name), devices_(devices), group_(std::move(group)), timeout_(timeout) {}
  C10dGroup(const C10dGroup&) = delete;
  C10dGroup& operator=(const C10dGroup&) = delete;
  ~C10dGroup() override {
    end([](Group& group) { compat::shut_down(group); });
  }

  std::string_view name() const override { return name_; }
  bool carries(const torch::Device& device) const override { return device.type() == devices_; }

  void sum(const torch::Tensor& tensor) override {
    if (tensor.numel() == 0) return;
    std::vector<torch::Tensor> own{tensor};
    finish(group().allreduce(own));
  }

  void broadcast(const torch::Tensor& tensor, int root) override {
    if (tensor.numel() == 0) return;
    std::vector<torch::Tensor> own{bytes_of(tensor)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    finish(group().broadcast(own, options));
  }

  // All bring as many rows as the one with the most.
  std::vector<torch::Tensor> gather(const torch::Tensor& tensor, const std::vector<int64_t>& rows) override {
    std::vector<int64_t> shape = tensor.sizes().vec();
    shape[0] = *std::max_element(rows.begin(), rows.end());
    const torch::Tensor padded = at::zeros(shape, tensor.options());
    padded.narrow(0, 0, tensor.size(0)).copy_(tensor);
    std::vector<torch::Tensor> parts(rows.size());
    std::vector<torch::Tensor> own{bytes_of(padded)};
    std::vector<std::vector<torch::Tensor>> all(1);
    for (torch::Tensor& part : parts) {
      part = at::empty_like(padded);
      all.front().push_back(bytes_of(part));
    }
    if (padded.numel() > 0) finish(group().allgather(all, own));
    for (std::size_t r = 0; r < rows.size(); ++r) parts[r] = parts[r].narrow(0, 0, rows[r]).contiguous();
    return parts;
  }

  void drop() noexcept override {
    end([](Group& group) { compat::abort(group); });
  }
  void abort() noexcept override { aborted_ = true; }

 private:
  // What is copied can be of dtypes that the group does not know.
  static torch::Tensor bytes_of(const torch::Tensor& tensor) { return tensor.view({-1}).view(torch::kByte); }

  Group& group() const {
    if (!group_ || aborted_) throw std::runtime_error("aborted");
    return *group_;
  }

  template <typename End>
  void end(const End& how) noexcept {
    if (!group_) return;
    try {
      how(*group_);
    } catch (const std::exception& error) {
      log().warn("[collective] {}: LibTorch's group does not end well: {}", name_, error.what());
    }
    group_.reset();
  }

  // NCCL's own wait only makes the current stream wait, without a deadline; it comes last. Until then the thread asks
  // and sleeps, an eighth of the time that it has waited: it may share the core with those that feed the devices.
  template <typename Work>
  void finish(const Work& work) const {
    using std::chrono::microseconds;
    const Deadline deadline(timeout_);
    const auto begin = Deadline::Clock::now();
    while (!work->isCompleted()) {
      if (aborted_) throw std::runtime_error("aborted");
      if (deadline.passed()) throw std::runtime_error("timed out");
      const auto waited = std::chrono::duration_cast<microseconds>(Deadline::Clock::now() - begin);
      std::this_thread::sleep_for(std::clamp(waited / 8, microseconds(5), microseconds(1000)));
    }
    work->wait();
  }

  std::string name_;
  torch::DeviceType devices_;
  c10::intrusive_ptr<Group> group_;
  std::chrono::milliseconds timeout_;
  std::atomic<bool> aborted_ = false;
};

}  // namespace cohort
