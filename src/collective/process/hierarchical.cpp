#include "collective/process/hierarchical.h"

#include <ATen/Functions.h>

#include "base/fail.h"
#include "collective/ops/cross_device_ops.h"

namespace cohort {

namespace {

class Hierarchical final : public Communicator {
 public:
  Hierarchical(Communicator& local, Communicator& world) : local_(local), world_(world) {}

  std::string_view name() const override { return world_.name(); }
  int rank() const override { return world_.rank() * local_.size() + local_.rank(); }
  int size() const override { return world_.size() * local_.size(); }

  void all_reduce(std::span<torch::Tensor> tensors, ReduceOp op) override {
    if (local_.size() == 1) return world_.all_reduce(tensors, op);
    local_.all_reduce(tensors, ReduceOp::kSum);
    if (leads()) world_.all_reduce(tensors, ReduceOp::kSum);
    local_.broadcast(tensors, 0);
    if (op == ReduceOp::kSum) return;
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& tensor : tensors) {
      torch::Tensor sum = tensor.detach();
      divide(sum, size());
    }
  }

  void broadcast(std::span<torch::Tensor> tensors, int root) override {
    if (root < 0 || root >= size()) {
      fail<InvalidArgument>("[collective] broadcast: root ", root, ", but there are ", size(), " ranks");
    }
    if (root / local_.size() == world_.rank()) local_.broadcast(tensors, root % local_.size());
    if (leads()) world_.broadcast(tensors, root / local_.size());
    local_.broadcast(tensors, 0);
  }

  std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor) override {
    if (local_.size() == 1) return world_.all_gather(tensor);
    const torch::NoGradGuard no_grad;
    const bool scalar = tensor.dim() == 0;
    const torch::Tensor own = scalar ? tensor.detach().unsqueeze(0) : tensor.detach();
    const std::vector<torch::Tensor> parts = local_.all_gather(own);

    torch::Tensor rows = torch::empty({size()}, torch::kLong);  // of every rank
    if (leads()) {
      std::vector<int64_t> counts;
      for (const torch::Tensor& part : parts) counts.push_back(part.size(0));
      rows = at::cat(world_.all_gather(torch::tensor(counts, torch::kLong)));
    }
    local_.broadcast({&rows, 1}, 0);
    // Each says how many it has: processes with other numbers of ranks, or none at all, are found out here.
    if (rows.numel() != size() || rows.lt(0).any().item<bool>()) {
      fail<DataLoss>("[collective] all_gather: ", rows.numel(), " numbers of rows came, ", size(),
                     " of 0 or more are wanted");
    }

    std::vector<int64_t> shape = own.sizes().vec();
    shape[0] = rows.sum().item<int64_t>();
    torch::Tensor all = torch::empty(shape, own.options());
    if (leads()) all = at::cat(world_.all_gather(at::cat(parts)));
    local_.broadcast({&all, 1}, 0);

    std::vector<torch::Tensor> result;
    int64_t at = 0;
    for (int r = 0; r < size(); ++r) {
      const auto count = rows[r].item<int64_t>();
      result.push_back(scalar ? all[at].clone() : all.narrow(0, at, count).clone());
      at += count;
    }
    return result;
  }

  torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op) override {
    if (tensor.dim() == 0 || tensor.size(0) % size() != 0) {
      fail<InvalidArgument>("[collective] reduce_scatter: dimension 0 of a tensor of shape ", tensor.sizes(),
                            " must be a multiple of the ", size(), " ranks");
    }
    torch::Tensor whole = tensor.detach().clone(torch::MemoryFormat::Contiguous);
    all_reduce({&whole, 1}, op);
    const int64_t rows = tensor.size(0) / size();
    return whole.narrow(0, rank() * rows, rows).clone();
  }

  void barrier() override {
    local_.barrier();
    if (leads()) world_.barrier();
    local_.barrier();
  }

  void abort(const std::string& reason) override {
    local_.abort(reason);
    world_.abort(reason);
  }

 private:
  bool leads() const { return local_.rank() == 0; }

  Communicator& local_;
  Communicator& world_;
};

}  // namespace

std::unique_ptr<Communicator> make_hierarchical(Communicator& local, Communicator& world) {
  return std::make_unique<Hierarchical>(local, world);
}

}  // namespace cohort
