// StandInLine: a replica's line along an axis in a part of the model that another process computes. Tensors have no
// values there, so nothing is sent; results have the sizes that they would have.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/communicator.h"
#include "collective/work_queues.h"

namespace cohort {

class StandInLine final : public Communicator {
 public:
  StandInLine(int rank, int size) : rank_(rank), size_(size) {}

  std::string_view name() const override { return "stand-in"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(std::span<torch::Tensor> /*tensors*/, ReduceOp /*op*/) override {}
  void broadcast(std::span<torch::Tensor> /*tensors*/, int /*root*/) override {}
  std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor) override;
  torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op) override;
  std::vector<torch::Tensor> all_to_all(std::span<const torch::Tensor> parts) override;
  void barrier() override {}
  void send(const torch::Tensor& /*tensor*/, Peer /*to*/) override {}
  void recv(torch::Tensor /*tensor*/, Peer /*from*/) override {}
  std::unique_ptr<Communicator> split(int color, int key) override;
  void abort(const std::string& /*reason*/) override {}
  WorkQueues& queues() override { return queues_; }

 private:
  int rank_;
  int size_;
  WorkQueues queues_;
};

}  // namespace cohort
