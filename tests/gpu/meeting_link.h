// What joins the stand-in's cards in the place of NCCL: their streams' threads meet, or those that run their graphs,
// and one of them does the work.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/cohort.h"
#include "collective/devices/linked_sums.h"

namespace cohort::gpu {

class MeetingLink final : public DeviceLink {
 public:
  explicit MeetingLink(std::size_t devices) : devices_(devices) {}

  std::string_view name() const override { return "meeting"; }
  void all_reduce(SideStreams& streams, const SumsBeside::Tensors& tensors) override;
  void join(std::size_t device, const std::vector<torch::Tensor>& tensors) override;
  void all_gather(SideStreams& streams, const std::vector<torch::Tensor>& own,
                  const std::vector<torch::Tensor>& whole) override;
  std::string error() override { return {}; }
  void abort() noexcept override;

  // How often sums and gathers were begun for all devices together.
  static std::atomic<int> sums;
  static std::atomic<int> gathers;
  // The device whose next join() throws; -1: none.
  static std::atomic<int> fails_on;

 private:
  struct Meeting {
    std::size_t missing = 0;
    bool done = false;
    std::map<std::size_t, std::vector<torch::Tensor>> tensors = {};  // of join()
  };

  void meet(SideStreams& streams, std::size_t devices, const std::function<void()>& work);
  void come(std::unique_lock<std::mutex>& lock, Meeting& meeting, const std::function<void()>& work);

  std::size_t devices_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Meeting> joining_;  // that of join()
  bool aborted_ = false;
};

std::unique_ptr<DeviceLink> make_meeting(const std::vector<torch::Device>& devices);

// Replicas on these devices, whose gradients leave in buckets of 64 bytes, over such a link where they are several.
Strategy linked(const std::vector<std::string>& names, ExchangeOptions exchange = {},
                std::chrono::milliseconds timeout = std::chrono::seconds(20));

std::vector<std::string> two_replicas_a_card();

}  // namespace cohort::gpu
