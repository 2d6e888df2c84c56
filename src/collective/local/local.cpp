#include "collective/local/local.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "base/fail.h"
#include "collective/dense.h"

namespace cohort {

namespace {

int detail_of(ReduceOp op) {
  return op == ReduceOp::kMean ? 1 : 0;
}

class Local final : public Communicator {
 public:
  Local(Rendezvous& meeting, const CrossDeviceOps& ops, int rank) : meeting_(meeting), ops_(ops), rank_(rank) {}

  std::string_view name() const override { return "local"; }
  int rank() const override { return rank_; }
  int size() const override { return meeting_.size(); }

  void all_reduce(std::span<torch::Tensor> tensors, ReduceOp op) override {
    if (size() == 1) return;
    const torch::NoGradGuard no_grad;
    // The ops want contiguous memory; what is not is reduced in a copy.
    std::vector<torch::Tensor> dense;
    for (torch::Tensor& tensor : tensors) {
      require_dense("all_reduce", tensor);
      dense.push_back(tensor.detach().contiguous());
    }
    std::span<torch::Tensor> mine(dense);
    meeting_.arrive(rank_, {.what = "all_reduce", .detail = detail_of(op), .tensors = mine}, &mine);
    std::vector<std::span<torch::Tensor>> all;
    for (int r = 0; r < size(); ++r) all.push_back(*static_cast<std::span<torch::Tensor>*>(meeting_.data(r)));
    ops_.all_reduce(meeting_, rank_, all, op);
    meeting_.depart(rank_);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].data_ptr() != dense[i].data_ptr()) tensors[i].detach().copy_(dense[i]);
    }
  }

  void broadcast(std::span<torch::Tensor> tensors, int root) override {
    if (root < 0 || root >= size()) {
      fail<InvalidArgument>("[collective] broadcast: root ", root, ", but there are ", size(), " ranks");
    }
    if (size() == 1) return;
    const torch::NoGradGuard no_grad;
    meeting_.arrive(rank_, {.what = "broadcast", .detail = root, .tensors = tensors}, &tensors);
    const auto& from = *static_cast<std::span<torch::Tensor>*>(meeting_.data(root));
    if (rank_ != root) {
      for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].detach().copy_(from[i].detach());
    }
    meeting_.depart(rank_);
  }

  std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor) override {
    const torch::NoGradGuard no_grad;
    require_dense("all_gather", tensor);
    if (size() == 1) return {tensor.detach().clone()};
    torch::Tensor mine = tensor.detach();
    meeting_.arrive(rank_, {.what = "all_gather", .tensors = {&mine, 1}, .ragged = true}, &mine);
    std::vector<torch::Tensor> parts;
    for (int r = 0; r < size(); ++r) {
      const auto& part = *static_cast<torch::Tensor*>(meeting_.data(r));
      parts.push_back(part.to(mine.device(), /*non_blocking=*/false, /*copy=*/true));
    }
    meeting_.depart(rank_);
    return parts;
  }

  torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op) override {
    if (tensor.dim() == 0 || tensor.size(0) % size() != 0) {
      fail<InvalidArgument>("[collective] reduce_scatter: dimension 0 of a tensor of shape ", tensor.sizes(),
                            " must be a multiple of the ", size(), " ranks");
    }
    const torch::NoGradGuard no_grad;
    if (size() == 1) return tensor.detach().clone();
    torch::Tensor mine = tensor.detach();
    meeting_.arrive(rank_, {.what = "reduce_scatter", .detail = detail_of(op), .tensors = {&mine, 1}}, &mine);
    const int64_t rows = tensor.size(0) / size();
    std::vector<torch::Tensor> parts;
    for (int r = 0; r < size(); ++r) {
      parts.push_back(static_cast<torch::Tensor*>(meeting_.data(r))->narrow(0, rank_ * rows, rows));
    }
    torch::Tensor result = torch::empty_like(parts[static_cast<std::size_t>(rank_)], torch::MemoryFormat::Contiguous);
    reduce_into(result, parts, op);
    meeting_.depart(rank_);
    return result;
  }

  void barrier() override {
    if (size() == 1) return;
    meeting_.arrive(rank_, {.what = "barrier"}, nullptr);
    meeting_.depart(rank_);
  }

  void abort(const std::string& reason) override { meeting_.abort(reason); }

 private:
  Rendezvous& meeting_;
  const CrossDeviceOps& ops_;
  int rank_;
};

}  // namespace

std::unique_ptr<Communicator> make_local(Rendezvous& meeting, const CrossDeviceOps& ops, int rank) {
  return std::make_unique<Local>(meeting, ops, rank);
}

}  // namespace cohort
