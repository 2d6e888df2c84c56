// A DeviceGroup made of one of LibTorch's process groups (c10d).
#pragma once

#include <ATen/Functions.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/fail.h"
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
};

// What LibTorch's groups ask of a store, which is to be told the addresses of their ranks.
class MeetingStore final : public c10d::Store {
 public:
  explicit MeetingStore(GroupMeeting meeting) : c10d::Store(meeting.timeout), meeting_(std::move(meeting)) {}

  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    meeting_.put(meeting_.prefix + key, std::string(value.begin(), value.end()));
  }
  std::vector<uint8_t> get(const std::string& key) override { return get(key, timeout_); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    for (const std::string& key : keys) (void)get(key, timeout);
  }
  bool check(const std::vector<std::string>& keys) override {
    try {
      wait(keys, std::chrono::milliseconds(0));
    } catch (const Error&) {
      return false;
    }
    return true;
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

  // A group of NCCL ends what it has on the devices when it goes.
  void drop() noexcept override { group_.reset(); }
  void abort() noexcept override { aborted_ = true; }

 private:
  // What is copied can be of dtypes that the group does not know.
  static torch::Tensor bytes_of(const torch::Tensor& tensor) { return tensor.view({-1}).view(torch::kByte); }

  Group& group() const {
    if (!group_ || aborted_) throw std::runtime_error("aborted");
    return *group_;
  }

  // NCCL's own wait only makes the current stream wait, without a deadline; it comes last.
  template <typename Work>
  void finish(const Work& work) const {
    const Deadline deadline(timeout_);
    while (!work->isCompleted()) {
      if (aborted_) throw std::runtime_error("aborted");
      if (deadline.passed()) throw std::runtime_error("timed out");
      std::this_thread::yield();
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
