// Rank 0 adds up what the others have; they copy from it. The baseline, and the only way for a mix of devices.
#include "collective/ops/cross_device_ops.h"

namespace cohort {

namespace {

class ReductionToOneDevice final : public CrossDeviceOps {
 public:
  std::string_view name() const override { return "reduction_to_one_device"; }

  void all_reduce(Rendezvous& meeting, int rank, RankTensors all, ReduceOp op) const override {
    if (rank == 0) {
      for (std::size_t i = 0; i < all[0].size(); ++i) {
        std::vector<torch::Tensor> sources;
        for (const auto& tensors : all) sources.push_back(tensors[i]);
        reduce_into(all[0][i], sources, op);
      }
    }
    meeting.sync(rank);
    if (rank == 0) return;
    const auto mine = all[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i].copy_(all[0][i]);
  }
};

}  // namespace

std::unique_ptr<CrossDeviceOps> make_reduction_to_one_device() {
  return std::make_unique<ReductionToOneDevice>();
}

}  // namespace cohort
