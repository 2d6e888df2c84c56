// ProcessCommunicator: operations between the processes of a cluster, over a Transport. It adds what a transport does
// not know: tensors of any layout and dtype, whether all ranks do the same, and who is to blame when they do not come.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cohort/communicator.h"
#include "collective/process/agreement.h"
#include "collective/transport.h"
#include "collective/work_queues.h"

namespace cohort {

class SharedSum;
class StreamSums;

struct ProcessGroupOptions {
  AgreementOptions agreement = {};
  bool shared_memory = true;  // ranks of one machine may share memory
  // A text that ranks of one machine have in common; empty: its boot, and the namespaces of their processes and
  // network.
  std::string machine = {};
  // The same ranks for the tensors of these devices, which stay there; null: all go through the host's memory. It need
  // not check anything: it gets contiguous tensors that are alike on all ranks.
  std::shared_ptr<Communicator> devices = nullptr;
  torch::DeviceType device_type = torch::kCPU;  // the type of these devices
};

// Operations are announced by a small message before their data, so that one that differs is found on every rank before
// it does harm (FailedPrecondition names both). A peer that is lost, or has left: Unavailable, by name.
class ProcessCommunicator final : public Communicator {
 public:
  ProcessCommunicator(std::unique_ptr<Transport> transport, ProcessGroupOptions options);
  ProcessCommunicator(const ProcessCommunicator&) = delete;
  ProcessCommunicator& operator=(const ProcessCommunicator&) = delete;
  ~ProcessCommunicator() override;

  std::string_view name() const override { return options_.devices ? options_.devices->name() : transport_->name(); }
  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }

  void all_reduce(std::span<torch::Tensor> tensors, ReduceOp op) override;
  void broadcast(std::span<torch::Tensor> tensors, int root) override;
  std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor) override;
  torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op) override;
  std::vector<torch::Tensor> all_to_all(std::span<const torch::Tensor> parts) override;
  void barrier() override;
  void send(const torch::Tensor& tensor, Peer to) override;
  void recv(torch::Tensor tensor, Peer from) override;
  std::unique_ptr<Communicator> split(int color, int key) override { return split_processes(color, key); }
  void abort(const std::string& reason) override;
  WorkQueues& queues() override { return queues_; }

  // Sums over the ranks, in rank order, what they have for this one: pieces[r] is for rank r and has the same shape and
  // dtype on all ranks.
  torch::Tensor reduce_pieces(const std::vector<torch::Tensor>& pieces);

  // Splits as split() does.
  std::unique_ptr<ProcessCommunicator> split_processes(int color, int key);

  // Makes a flat tensor of zeros on the CPU that is meant for all_reduce, whole or in contiguous parts, one a call, the
  // same on all ranks; collective. Ranks on one machine add it up in memory that they share, where that can be had and
  // the dtype is float32 or float64; between machines their sums are `sent` as this dtype then.
  torch::Tensor shared_zeros(int64_t size, torch::ScalarType dtype, torch::ScalarType sent);
  torch::Tensor shared_zeros(int64_t size, torch::ScalarType dtype) { return shared_zeros(size, dtype, dtype); }
  // Returns whether it has collectives of a library's (engine.h), which then add up what goes from machine to machine.
  bool has_engine() const { return transport_->engine() != nullptr; }
  // Returns whether a tensor is a part of such memory.
  bool adds_in_memory(const torch::Tensor& tensor) const;

  // Returns two numbers of every rank, in rank order, from a single message of each: for what has to be agreed on in
  // every step.
  using Numbers = Agreement::Numbers;
  std::vector<Numbers> gather_numbers(const std::string& what, const Numbers& mine);

  // Does the same in two parts, with other work in between. It is begun on every rank between the same operations. The
  // end of a group is only heard of in finish(). A begun operation has to be finished, once.
  using Begun = Agreement::Begun;
  [[nodiscard]] std::shared_ptr<Begun> begin_gather(const std::string& what, const Numbers& mine);
  std::vector<Numbers> finish_gather(Begun& begun);

  // Sends and receives on a way between two ranks that others do not use, so that several threads of a process may do
  // so at once. Ways are numbered from 0; the tensor goes through the host's memory.
  void send_on(uint32_t way, const torch::Tensor& tensor, Peer to);
  void recv_on(uint32_t way, torch::Tensor tensor, Peer from);

  // Returns whether an operation has failed such that none can follow.
  bool broken() const { return agreement_.broken(); }

  // Returns a name such as "worker 1".
  std::string rank_name(int rank) const { return agreement_.rank_name(rank); }
  const FlightRecorder& recorder() const { return agreement_.recorder(); }

  // For collectives that devices carry out by themselves, without an announcement. All ranks begin the same ones
  // between the same operations.
  // Returns what adds up tensors of a device in the order of its streams; null: there is nothing that does.
  StreamSums* stream_sums(torch::Device device) const;
  // Returns where they are noted.
  FlightRecorder& recorder() { return agreement_.recorder(); }
  // Returns why none of them can come to its end any more; nothing while all is well.
  std::optional<std::string> failure() const { return agreement_.failure(); }
  // Returns why one of them has met an error; waits a little for the membership to know of it.
  std::string reason_of(const std::string& error) const { return agreement_.reason_of(error); }
  // Returns the ranks that have not come to one of them, by its number in the recorder; empty: it is not known.
  std::string missing(uint64_t number) const { return agreement_.stragglers(number); }

 private:
  // A group that was split from another one, as far as the other one knows it.
  struct Part {
    std::mutex mutex;
    ProcessCommunicator* group = nullptr;  // null: it is gone
  };

  void settle();
  void end_waits();
  torch::ScalarType travelling(const torch::Tensor& tensor, ReduceOp op) const;
  bool stays(const torch::Tensor& tensor) const;
  torch::Tensor ready(const torch::Tensor& tensor) const;
  void sum(torch::Tensor flat, ReduceOp op);
  void sum_together(std::vector<torch::Tensor>& tensors, torch::ScalarType dtype, ReduceOp op);
  torch::Tensor sum_pieces(const std::vector<torch::Tensor>& pieces);
  std::vector<torch::Tensor> gather_on_devices(const torch::Tensor& own, const std::vector<int64_t>& rows);
  Agreement::Exchange exchange_with(std::string_view call, Transport::Lane lane, const torch::Tensor& tensor,
                                    Peer peer) const;
  const SharedSum* find_shared(std::span<const torch::Tensor> tensors) const;
  void sum_shared(const SharedSum& shared, torch::Tensor tensor, ReduceOp op);

  std::unique_ptr<Transport> transport_;
  ProcessGroupOptions options_;
  Agreement agreement_;
  std::vector<std::shared_ptr<SharedSum>> shared_;  // those whose tensors are in use
  int shares_ = 0;
  int splits_ = 0;
  std::shared_ptr<Part> self_ = std::make_shared<Part>();
  std::mutex parts_mutex_;
  std::vector<std::weak_ptr<Part>> parts_;  // split from this one
  WorkQueues queues_;
};

}  // namespace cohort
