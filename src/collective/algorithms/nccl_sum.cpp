// All-reduce over the GPUs of this process with NCCL, through LibTorch's own binding and its cached communicators.
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/nccl.h>

#include <memory>
#include <mutex>

#include "collective/algorithms/cross_device_sum.h"

namespace cohort {

namespace {

class NcclSum {
 public:
  // NCCL's single-process calls are grouped, so rank 0 makes them for all devices, each on the stream that is current
  // in the thread of its replica: after what that replica has enqueued, and before what it will.
  void all_reduce(Rendezvous& meeting, int rank, RankTensors all, ReduceOp op) {
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

  std::mutex mutex_;
  torch::cuda::nccl::stream_list streams_;  // [rank], in the operation in progress
};

}  // namespace

bool has_nccl_sum() {
  return true;
}

// NCCL adds in an order of its own, of which reduce_into() knows nothing: the last bits may differ.
CrossDeviceSum make_nccl_sum() {
  const auto sum = std::make_shared<NcclSum>();
  return {.name = "nccl",
          .all_reduce = [sum](Rendezvous& meeting, int rank, RankTensors all,
                              ReduceOp op) { sum->all_reduce(meeting, rank, all, op); },
          .reduce = reduce_into};
}

}  // namespace cohort
