// All-reduce over the GPUs of this process with NCCL, through LibTorch's own binding and its cached communicators.
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/nccl.h>

#include "collective/ops/cross_device_ops.h"

namespace cohort {

namespace {

class Nccl final : public CrossDeviceOps {
 public:
  std::string_view name() const override { return "nccl"; }

  // NCCL's single-process calls are grouped, so rank 0 makes them for all devices; the others wait for it to have
  // enqueued the work, and their streams wait on the device.
  void all_reduce(Rendezvous& meeting, int rank, RankTensors all, ReduceOp op) const override {
    if (rank == 0) {
      constexpr int kNcclSum = 0;  // ncclSum
      for (std::size_t i = 0; i < all[0].size(); ++i) {
        std::vector<torch::Tensor> tensors;
        for (const auto& mine : all) tensors.push_back(mine[i]);
        torch::cuda::nccl::all_reduce(tensors, tensors, kNcclSum);
        if (op == ReduceOp::kMean) {
          for (torch::Tensor& tensor : tensors) divide(tensor, static_cast<int64_t>(all.size()));
        }
      }
    }
    meeting.sync(rank);
  }
};

}  // namespace

bool has_nccl() {
  return true;
}

std::unique_ptr<CrossDeviceOps> make_nccl() {
  return std::make_unique<Nccl>();
}

}  // namespace cohort
