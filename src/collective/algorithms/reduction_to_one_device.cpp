// Rank 0 adds up what the others have; they copy from it. The baseline, and the only way for a mix of devices.
#include "collective/algorithms/cross_device_sum.h"

namespace cohort {

namespace {

void reduce_to_one(Rendezvous& meeting, int rank, RankTensors all, ReduceOp op) {
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

}  // namespace

CrossDeviceSum make_reduction_to_one_device() {
  return {.name = "reduction_to_one_device", .all_reduce = reduce_to_one, .reduce = reduce_into};
}

}  // namespace cohort
