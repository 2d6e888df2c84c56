// Sums over processes that the stand-in's cards make by themselves, in the place of NCCL between processes: ranks are
// threads of this process, and the threads of their cards' streams meet.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cohort/communicator.h"
#include "collective/devices/stream_sums.h"
#include "collective/work_queues.h"

namespace cohort::gpu {

// The place where the ranks of a group meet.
class SumHall {
 public:
  explicit SumHall(int size) : came_(static_cast<std::size_t>(size)) {}

  int size() const { return static_cast<int>(came_.size()); }

  // Adds up what the ranks bring, in place, in rank order. Throws when the group has ended.
  void add_up(int rank, const torch::Tensor& tensor) {
    std::unique_lock lock(mutex_);
    came_[static_cast<std::size_t>(rank)] = tensor;
    const uint64_t now = meetings_;
    if (++present_ == size()) {
      torch::Tensor sum = came_.front();
      for (std::size_t r = 1; r < came_.size(); ++r) sum.add_(came_[r].to(sum.device()));
      for (std::size_t r = 1; r < came_.size(); ++r) came_[r].copy_(sum);
      present_ = 0;
      ++meetings_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return meetings_ != now || !ended_.empty(); });
    if (meetings_ == now) throw std::runtime_error(ended_);
  }
  void end(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (ended_.empty()) ended_ = reason;
    changed_.notify_all();
  }
  std::string ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  // Returns the hall of the group that all split from this one in their n-th split.
  std::shared_ptr<SumHall> split(int n) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<SumHall>& hall = splits_[n];
    if (!hall) hall = std::make_shared<SumHall>(size());
    return hall;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<torch::Tensor> came_;
  int present_ = 0;
  uint64_t meetings_ = 0;
  std::string ended_;
  std::map<int, std::shared_ptr<SumHall>> splits_;
};

// One rank's end. It adds up and broadcasts, and nothing else.
class CardSums final : public Communicator, public StreamSums {
 public:
  CardSums(std::shared_ptr<SumHall> hall, int rank) : hall_(std::move(hall)), rank_(rank) {}

  std::string_view name() const override { return "cards"; }
  int rank() const override { return rank_; }
  int size() const override { return hall_->size(); }

  void all_reduce(std::span<torch::Tensor> tensors, ReduceOp /*op*/) override {
    for (const torch::Tensor& tensor : tensors) hall_->add_up(rank_, tensor);
  }
  void broadcast(std::span<torch::Tensor> tensors, int root) override {
    for (torch::Tensor& tensor : tensors) {
      if (rank_ != root) tensor.zero_();
      hall_->add_up(rank_, tensor);
    }
  }
  void begin_all_reduce(const torch::Tensor& tensor) override {
    hall_->add_up(rank_, tensor);
    ++sums;
  }
  std::string error() override { return hall_->ended(); }
  void end_sums(const std::string& reason) noexcept override { hall_->end(reason); }
  void abort(const std::string& reason) override { hall_->end(reason); }
  std::unique_ptr<Communicator> split(int /*color*/, int key) override {
    return std::make_unique<CardSums>(hall_->split(++splits_), key);
  }
  WorkQueues& queues() override { return queues_; }

  std::vector<torch::Tensor> all_gather(const torch::Tensor& /*tensor*/) override { refuse(); }
  torch::Tensor reduce_scatter(const torch::Tensor& /*tensor*/, ReduceOp /*op*/) override { refuse(); }
  std::vector<torch::Tensor> all_to_all(std::span<const torch::Tensor> /*parts*/) override { refuse(); }
  void barrier() override { refuse(); }
  void send(const torch::Tensor& /*tensor*/, Peer /*to*/) override { refuse(); }
  void recv(torch::Tensor /*tensor*/, Peer /*from*/) override { refuse(); }

  static inline std::atomic<int> sums = 0;  // made beside, of all ranks

 private:
  [[noreturn]] static void refuse() { throw std::logic_error("the stand-in's cards only add up and broadcast"); }

  std::shared_ptr<SumHall> hall_;
  int rank_;
  int splits_ = 0;
  WorkQueues queues_;
};

}  // namespace cohort::gpu
