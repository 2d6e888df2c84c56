// All-reduce over the GPUs of this process with NCCL, through LibTorch's own binding and its cached communicators.
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/nccl.h>

#include <mutex>

#include "collective/ops/cross_device_ops.h"

namespace cohort {

namespace {

class Nccl final : public CrossDeviceOps {
 public:
  std::string_view name() const override { return "nccl"; }

  // NCCL's single-process calls are grouped, so rank 0 makes them for all devices, each on the stream that is current
  // in the thread of its replica: after what that replica has enqueued, and before what it will.
  void all_reduce(Rendezvous& meeting, int rank, RankTensors all, ReduceOp op) const override {
    if (all[0].empty()) return;
    const auto me = static_cast<std::size_t>(rank);
    {
      const std::lock_guard lock(mutex_);
      streams_.resize(all.size());
      streams_[me] = c10::cuda::getCurrentCUDAStream(all[me].front().device().index());
    }
    meeting.sync(rank);
    if (rank == 0) enqueue(all);
    meeting.sync(rank);
    if (op != ReduceOp::kMean) return;
    for (torch::Tensor& sum : all[me]) divide(sum, static_cast<int64_t>(all.size()));
  }

 private:
  void enqueue(RankTensors all) const {
    constexpr int kNcclSum = 0;       // ncclSum
    static std::mutex one_at_a_time;  // LibTorch's communicators are the process's
    const std::lock_guard lock(one_at_a_time);
    for (std::size_t i = 0; i < all[0].size(); ++i) {
      std::vector<torch::Tensor> tensors;
      for (const auto& mine : all) tensors.push_back(mine[i]);
      torch::cuda::nccl::all_reduce(tensors, tensors, kNcclSum, streams_);
    }
  }

  mutable std::mutex mutex_;
  mutable torch::cuda::nccl::stream_list streams_;  // [rank], of the operation in progress
};

}  // namespace

bool has_nccl() {
  return true;
}

std::unique_ptr<CrossDeviceOps> make_nccl() {
  return std::make_unique<Nccl>();
}

}  // namespace cohort
