#include "tests/gpu/meeting_link.h"

#include <stdexcept>

#include "base/access.h"
#include "collective/algorithms/linked_sum.h"
#include "strategy/core.h"
#include "strategy/strategies/devices.h"
#include "tests/gpu/cards.h"
#include "tests/gpu/stand_in_call.h"

namespace cohort::gpu {

std::atomic<int> MeetingLink::sums = 0;
std::atomic<int> MeetingLink::gathers = 0;
std::atomic<int> MeetingLink::fails_on = -1;

void MeetingLink::all_reduce(SideStreams& streams, const SumsBeside::Tensors& tensors) {
  ++sums;
  const auto add_up = [tensors] {
    for (std::size_t i = 0; i < tensors.front().size(); ++i) {
      torch::Tensor sum = tensors.front()[i];
      for (std::size_t d = 1; d < tensors.size(); ++d) sum.add_(tensors[d][i].to(sum.device()));
      for (std::size_t d = 1; d < tensors.size(); ++d) tensors[d][i].copy_(sum);
    }
  };
  meet(streams, tensors.size(), add_up);
}

// A kernel of its own, which is no operation of a card.
void MeetingLink::join(std::size_t device, const std::vector<torch::Tensor>& tensors) {
  int failing = static_cast<int>(device);
  if (fails_on.compare_exchange_strong(failing, -1)) throw std::runtime_error("the card has come to grief");
  std::unique_lock lock(mutex_);
  if (aborted_) return;
  if (joining_ == nullptr) joining_ = std::make_shared<Meeting>(Meeting{.missing = devices_});
  const std::shared_ptr<Meeting> mine = joining_;
  for (const torch::Tensor& tensor : tensors) mine->tensors[device].push_back(on_host(tensor));
  const auto add_up = [&] {
    joining_ = nullptr;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      torch::Tensor sum = mine->tensors[0][i];
      for (std::size_t d = 1; d < devices_; ++d) sum.add_(mine->tensors[d][i]);
      for (std::size_t d = 1; d < devices_; ++d) mine->tensors[d][i].copy_(sum);
    }
  };
  come(lock, *mine, add_up);
}

void MeetingLink::all_gather(SideStreams& streams, const std::vector<torch::Tensor>& own,
                             const std::vector<torch::Tensor>& whole) {
  ++gathers;
  const auto gather = [own, whole] {
    for (const torch::Tensor& all : whole) {
      for (std::size_t d = 0; d < own.size(); ++d) all[static_cast<int64_t>(d)].copy_(own[d].view({-1}));
    }
  };
  meet(streams, own.size(), gather);
}

void MeetingLink::abort() noexcept {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

void MeetingLink::meet(SideStreams& streams, std::size_t devices, const std::function<void()>& work) {
  const auto meeting = std::make_shared<Meeting>(Meeting{.missing = devices});
  for (std::size_t d = 0; d < devices; ++d) {
    const auto take_part = [this, meeting, work] {
      std::unique_lock lock(mutex_);
      come(lock, *meeting, work);
    };
    streams.begin(d, take_part, {});
  }
}

void MeetingLink::come(std::unique_lock<std::mutex>& lock, Meeting& meeting, const std::function<void()>& work) {
  if (--meeting.missing == 0) {
    work();
    meeting.done = true;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return meeting.done || aborted_; });
}

std::unique_ptr<DeviceLink> make_meeting(const std::vector<torch::Device>& devices) {
  return std::make_unique<MeetingLink>(devices.size());
}

Strategy linked(const std::vector<std::string>& names, ExchangeOptions exchange, std::chrono::milliseconds timeout) {
  std::vector<LogicalDevice> devices;
  for (const std::string& name : names) devices.push_back(find_logical_device(name));
  StrategyPlan plan = local_plan("linked", devices);
  exchange.bytes_per_pack = 64;
  exchange.timeout = timeout;
  plan.exchange = exchange;
  plan.sum = make_linked_sum("meeting", make_meeting, timeout);
  return Access::make<Strategy>(std::make_shared<StrategyCore>(std::move(plan)));
}

std::vector<std::string> two_replicas_a_card() {
  return {"/GPU:0", "/GPU:1", "/GPU:2", "/GPU:3"};
}

}  // namespace cohort::gpu
