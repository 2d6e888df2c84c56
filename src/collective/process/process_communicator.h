// ProcessCommunicator: collectives between the processes of a cluster, over a Wire. It adds what a wire does not know:
// tensors of any layout and dtype, whether all ranks do the same, and who is to blame when they do not come.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cohort/cluster/cluster_spec.h"
#include "cohort/communicator.h"
#include "collective/process/device_group.h"
#include "collective/process/flight_recorder.h"
#include "collective/process/wire.h"

namespace cohort {

class SharedSum;

struct ProcessGroupOptions {
  // Of this group among those of the same ranks.
  std::string name = "collective";
  // Ranks are the members of this, in its order; nothing for a group without one (tests of a wire).
  std::shared_ptr<Membership> membership = nullptr;
  // Of the wire: a collective that took longer has run out of it.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // Waiting so long in one collective is reported, with the ranks that have not come to it.
  std::chrono::milliseconds straggler_after = std::chrono::seconds(5);
  // Whether ranks of one machine may share memory.
  bool shared_memory = true;
  // What ranks of one machine have in common; empty: its boot, and the namespaces of their processes and network.
  std::string machine = {};
  // Of the same ranks, for the tensors that it carries; null: all go over the wire.
  std::shared_ptr<DeviceGroup> devices = nullptr;
};

// Operations between the ranks are announced by a small message before their data, so that one that differs is found
// on every rank before it does harm (FailedPrecondition names both). A peer that is lost, or left: Unavailable, by
// name.
class ProcessCommunicator final : public Communicator {
 public:
  ProcessCommunicator(std::unique_ptr<Wire> wire, ProcessGroupOptions options);
  ProcessCommunicator(const ProcessCommunicator&) = delete;
  ProcessCommunicator& operator=(const ProcessCommunicator&) = delete;
  ~ProcessCommunicator() override;

  std::string_view name() const override { return options_.devices ? options_.devices->name() : wire_->name(); }
  int rank() const override { return wire_->rank(); }
  int size() const override { return wire_->size(); }

  void all_reduce(std::span<torch::Tensor> tensors, ReduceOp op) override;
  void broadcast(std::span<torch::Tensor> tensors, int root) override;
  std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor) override;
  torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op) override;
  void barrier() override;
  void abort(const std::string& reason) override;

  // Collective: a flat tensor of zeros on the CPU that is meant for all_reduce, whole or in contiguous parts, one a
  // call, the same on all ranks. Ranks on one machine add it up in memory that they share, where that can be had and
  // the dtype is float32 or float64.
  torch::Tensor shared_zeros(int64_t size, torch::ScalarType dtype);

  // Two numbers of every rank, in rank order, in a single message: for what has to be agreed on in every step.
  using Numbers = std::array<int64_t, 2>;
  std::vector<Numbers> gather_numbers(const std::string& what, const Numbers& mine);

  // The same in two parts, with other work in between: begun on every rank between the same operations. A group's end
  // is only heard of in finish(). What is begun has to be finished, once.
  struct Begun;
  [[nodiscard]] std::shared_ptr<Begun> begin_gather(const std::string& what, const Numbers& mine);
  std::vector<Numbers> finish_gather(Begun& begun);

  // Whether an operation has failed such that none can follow.
  bool broken() const { return broken_.has_value(); }

  // "worker 1"
  std::string rank_name(int rank) const;
  const FlightRecorder& recorder() const { return recorder_; }

 private:
  struct Ends;
  struct Announcement {
    uint64_t hash = 0;  // of what the rank is about to do
    Numbers numbers = {};
  };
  using Announcements = std::vector<Announcement>;

  template <typename Work>
  void perform(const std::string& what, const Numbers& mine, const Work& work);
  template <typename Work>
  void recorded(uint64_t number, const std::string& what, const Work& work);
  void announce(Begun& begun);
  void await(Begun& begun);
  [[noreturn]] void mismatch(uint64_t number, const std::string& what, const Announcements& all);
  [[noreturn]] void explain(uint64_t number, const std::string& what, const std::string& error);
  bool stays(const torch::Tensor& tensor) const;
  torch::Tensor ready(const torch::Tensor& tensor) const;
  void sum(torch::Tensor flat, ReduceOp op);
  void sum_together(std::vector<torch::Tensor>& tensors, torch::ScalarType dtype, ReduceOp op);
  const SharedSum* find_shared(std::span<const torch::Tensor> tensors) const;
  void sum_shared(const SharedSum& shared, torch::Tensor tensor, ReduceOp op);
  void end_waits();
  void watch(const std::stop_token& stop);
  std::string position_key(int rank) const;
  std::string stragglers(uint64_t number) const;

  std::unique_ptr<Wire> wire_;
  ProcessGroupOptions options_;
  FlightRecorder recorder_;
  uint64_t announced_ = 0;
  std::vector<std::shared_ptr<SharedSum>> shared_;  // those whose tensors are in use
  int shares_ = 0;
  std::optional<std::string> broken_;
  mutable std::mutex mutex_;
  std::optional<std::string> aborted_;
  std::shared_ptr<Ends> ends_;  // null where there is no membership
  std::jthread watcher_;
};

}  // namespace cohort
