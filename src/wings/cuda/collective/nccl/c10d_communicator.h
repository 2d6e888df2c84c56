// A communicator made of one of LibTorch's process groups (c10d), for tensors that stay on their devices.
#pragma once

#include <ATen/Functions.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error_text.h"
#include "base/fail.h"
#include "base/libtorch_compat.h"
#include "base/log.h"
#include "base/number_in.h"
#include "cohort/communicator.h"
#include "collective/algorithms/cross_device_sum.h"
#include "collective/devices/stream_sums.h"
#include "collective/transport.h"
#include "collective/work_queues.h"

namespace cohort {

// The store in which LibTorch's groups find the addresses of their ranks. Any thread may use it: NCCL's group has one
// that asks every second whether another rank has put a sign of failure there.
class MeetingStore final : public compat::Cloneable<c10d::Store, MeetingStore> {
 public:
  explicit MeetingStore(Meeting meeting) : Cloneable(meeting.timeout), meeting_(std::move(meeting)) {}

  c10::intrusive_ptr<c10d::Store> copy() const { return c10::make_intrusive<MeetingStore>(meeting_); }

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

  Meeting meeting_;
};

// Checks nothing: tensors are contiguous, on devices of the group, and alike on all ranks; ProcessCommunicator sees to
// that. A call that does not come to its end within the timeout, loses a peer or is aborted throws any std::exception,
// and nothing may follow. Group: c10d::ProcessGroupNCCL; c10d::ProcessGroupGloo in the tests.
template <typename Group>
class C10dCommunicator final : public Communicator, public StreamSums {
 public:
  // Makes LibTorch's group over a meeting of some ranks.
  using Make = std::function<c10::intrusive_ptr<Group>(const Meeting& meeting)>;

  C10dCommunicator(std::string_view name, Meeting meeting, Make make)
      : name_(name), meeting_(std::move(meeting)), make_(std::move(make)), group_(make_(meeting_)) {}
  C10dCommunicator(const C10dCommunicator&) = delete;
  C10dCommunicator& operator=(const C10dCommunicator&) = delete;
  ~C10dCommunicator() override {
    aborted_ ? drop() : end([](Group& group) { compat::shut_down(group); });
  }

  std::string_view name() const override { return name_; }
  int rank() const override { return meeting_.rank; }
  int size() const override { return meeting_.size; }

  void all_reduce(std::span<torch::Tensor> tensors, ReduceOp op) override {
    for (torch::Tensor& tensor : tensors) {
      if (tensor.numel() == 0) continue;
      std::vector<torch::Tensor> own{tensor};
      device_ = tensor.device().index();
      finish([&](Group& group) { return group.allreduce(own); });
      if (op == ReduceOp::kMean) divide(tensor, size());
    }
  }

  void broadcast(std::span<torch::Tensor> tensors, int root) override {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    for (const torch::Tensor& tensor : tensors) {
      if (tensor.numel() == 0) continue;
      std::vector<torch::Tensor> own{bytes_of(tensor)};
      finish([&](Group& group) { return group.broadcast(own, options); });
    }
  }

  // All ranks bring as many rows.
  std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor) override {
    std::vector<torch::Tensor> parts(static_cast<std::size_t>(size()));
    std::vector<torch::Tensor> own{bytes_of(tensor)};
    std::vector<std::vector<torch::Tensor>> all(1);
    for (torch::Tensor& part : parts) {
      part = at::empty_like(tensor);
      all.front().push_back(bytes_of(part));
    }
    if (tensor.numel() > 0) finish([&](Group& group) { return group.allgather(all, own); });
    return parts;
  }

  torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op) override {
    std::vector<std::vector<torch::Tensor>> all{tensor.tensor_split(size(), 0)};
    std::vector<torch::Tensor> own{at::empty_like(all.front().front())};
    if (tensor.numel() > 0) finish([&](Group& group) { return group.reduce_scatter(own, all); });
    if (op == ReduceOp::kMean) divide(own.front(), size());
    return own.front();
  }

  // The ranks tell each other first how many rows they send.
  std::vector<torch::Tensor> all_to_all(std::span<const torch::Tensor> parts) override {
    const torch::Tensor& first = parts.front();
    std::vector<int64_t> rows;
    for (const torch::Tensor& part : parts) rows.push_back(part.size(0));
    const auto of_all = all_gather(torch::tensor(rows, torch::kLong).to(first.device()));
    std::vector<torch::Tensor> received;
    std::vector<int64_t> shape = first.sizes().vec();
    std::vector<int64_t> bytes_out;
    std::vector<int64_t> bytes_in;
    for (int r = 0; r < size(); ++r) {
      shape[0] = of_all[static_cast<std::size_t>(r)][rank()].template item<int64_t>();
      received.push_back(at::empty(shape, first.options()));
      bytes_in.push_back(static_cast<int64_t>(received.back().nbytes()));
      bytes_out.push_back(static_cast<int64_t>(parts[static_cast<std::size_t>(r)].nbytes()));
    }
    torch::Tensor out = bytes_of(at::cat(std::vector<torch::Tensor>(parts.begin(), parts.end())));
    torch::Tensor in = bytes_of(at::cat(received));
    std::vector<int64_t> cuts = bytes_in;  // LibTorch keeps the lists that it gets
    finish([&](Group& group) { return group.alltoall_base(in, out, cuts, bytes_out); });
    const std::vector<torch::Tensor> cut = in.split_with_sizes(bytes_in);
    for (std::size_t r = 0; r < received.size(); ++r) bytes_of(received[r]).copy_(cut[r]);
    return received;
  }

  // LibTorch's group guesses a device if it gets none. Before the first collective the ranks meet on the host.
  void barrier() override {
    if (device_ < 0) return meet();
    c10d::BarrierOptions options;
    options.device_ids = {device_};
    finish([&](Group& group) { return group.barrier(options); });
  }

  void send(const torch::Tensor& tensor, Peer to) override {
    if (tensor.numel() == 0) return;
    std::vector<torch::Tensor> own{bytes_of(tensor)};
    finish([&](Group& group) { return group.send(own, to.rank, to.tag); });
  }

  void recv(torch::Tensor tensor, Peer from) override {
    if (tensor.numel() == 0) return;
    std::vector<torch::Tensor> own{bytes_of(tensor)};
    finish([&](Group& group) { return group.recv(own, from.rank, from.tag); });
  }

  // The ranks tell each other through the meeting what they choose.
  std::unique_ptr<Communicator> split(int color, int key) override {
    const std::string prefix = c10::str(meeting_.prefix, "split/", ++splits_, "/");
    meeting_.put(c10::str(prefix, rank()), c10::str(color, " ", key));
    std::vector<std::pair<int, int>> members;  // key and rank
    for (int r = 0; r < size() && color >= 0; ++r) {
      const std::string choice = meeting_.get(c10::str(prefix, r), meeting_.timeout);
      const std::size_t space = choice.find(' ');
      const auto number = [&](const std::string& text) {
        return number_in<int>(text, c10::str("[collective] the choice of rank ", r));
      };
      if (number(choice.substr(0, space)) == color)
        members.emplace_back(number(choice.substr(std::min(space + 1, choice.size()))), r);
    }
    if (color < 0) return nullptr;
    std::sort(members.begin(), members.end());
    const auto self = std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.second == rank(); });
    Meeting meeting = meeting_;
    meeting.rank = static_cast<int>(self - members.begin());
    meeting.size = static_cast<int>(members.size());
    meeting.prefix = c10::str(prefix, "color/", color, "/");
    return std::make_unique<C10dCommunicator>(name_, std::move(meeting), make_);
  }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    if (!aborted_) reason_ = reason;
    aborted_ = true;
  }
  WorkQueues& queues() override { return queues_; }

  // NCCL's wait only makes the current stream wait, unless the environment has TORCH_NCCL_BLOCKING_WAIT.
  void begin_all_reduce(const torch::Tensor& tensor) override {
    std::vector<torch::Tensor> own{tensor};
    auto work = working_group()->allreduce(own);
    work->wait();
    const std::lock_guard lock(mutex_);
    forget_ended();
    begun_.push_back(std::move(work));
  }

  std::string error() override {
    const std::lock_guard lock(mutex_);
    forget_ended();
    if (aborted_) return reason_;
    const std::exception_ptr failure = begun_.empty() ? nullptr : begun_.front()->exception();
    if (!failure) return {};
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      return error_text(error);
    }
  }

  void end_sums(const std::string& reason) noexcept override {
    abort(reason);
    drop();
  }

 private:
  using Begun = decltype(std::declval<Group&>().allreduce(std::declval<std::vector<torch::Tensor>&>()));

  // Copies can be of dtypes that the group does not know.
  torch::Tensor bytes_of(const torch::Tensor& tensor) {
    device_ = tensor.device().index();
    return tensor.view({-1}).view(torch::kByte);
  }

  void meet() {
    const std::string prefix = c10::str(meeting_.prefix, "barrier/", ++meetings_, "/");
    meeting_.put(c10::str(prefix, rank()), "");
    const Deadline deadline(meeting_.timeout);
    for (int r = 0; r < size(); ++r) {
      while (!meeting_.find(c10::str(prefix, r))) {
        (void)working_group();
        if (deadline.passed()) throw std::runtime_error("timed out");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  // Lets go of the sums that have come to a good end.
  void forget_ended() {
    while (!begun_.empty() && begun_.front()->isCompleted() && !begun_.front()->exception()) begun_.pop_front();
  }

  // Gives up the operations under way.
  void drop() noexcept {
    end([](Group& group) { compat::abort(group); });
  }

  template <typename End>
  void end(const End& how) noexcept {
    const c10::intrusive_ptr<Group> group = take_group();
    if (!group) return;
    try {
      how(*group);
    } catch (const std::exception& error) {
      log().warn("[collective] {}: LibTorch's group does not end well: {}", name_, error.what());
    }
  }

  c10::intrusive_ptr<Group> take_group() {
    const std::lock_guard lock(mutex_);
    return std::exchange(group_, {});
  }

  c10::intrusive_ptr<Group> working_group() const {
    const std::lock_guard lock(mutex_);
    if (aborted_ || !group_) throw std::runtime_error(reason_);
    return group_;
  }

  // NCCL's own wait only makes the current stream wait, without a deadline; it comes last. Until then the thread asks
  // and sleeps, an eighth of the time that it has waited: it may share the core with those that feed the devices.
  template <typename Start>
  void finish(const Start& start) {
    using std::chrono::microseconds;
    const c10::intrusive_ptr<Group> group = working_group();
    try {
      const auto work = start(*group);
      const Deadline deadline(meeting_.timeout);
      const auto begin = Deadline::Clock::now();
      while (!work->isCompleted()) {
        if (aborted_) (void)working_group();
        if (deadline.passed()) throw std::runtime_error("timed out");
        const auto waited = std::chrono::duration_cast<microseconds>(Deadline::Clock::now() - begin);
        std::this_thread::sleep_for(std::clamp(waited / 8, microseconds(5), microseconds(1000)));
      }
      work->wait();
    } catch (const std::exception& error) {
      abort(error.what());
      drop();
      throw;
    }
  }

  std::string name_;
  Meeting meeting_;
  Make make_;
  mutable std::mutex mutex_;  // guards what follows
  c10::intrusive_ptr<Group> group_;
  std::deque<Begun> begun_;  // sums that may be under way
  std::string reason_;
  int splits_ = 0;
  int meetings_ = 0;                  // barriers before the first collective
  std::atomic<int64_t> device_ = -1;  // of the tensors of the last collective; negative: the host, or none yet
  std::atomic<bool> aborted_ = false;
  WorkQueues queues_;
};

}  // namespace cohort
