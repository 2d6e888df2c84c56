// Two groups of half the ranks: each group adds up at its root, the roots exchange, and the sums are copied back. The
// root rotates with the tensor's index, so that the work spreads. After TensorFlow's HierarchicalCopyAllReduce, which
// assumes the links of an 8-GPU DGX-1; elsewhere ring or nccl is faster.
#include "collective/ops/cross_device_ops.h"

namespace cohort {

namespace {

class HierarchicalCopy final : public CrossDeviceOps {
 public:
  std::string_view name() const override { return "hierarchical_copy"; }

  void all_reduce(Rendezvous& meeting, int rank, RankTensors all, ReduceOp op) const override {
    const std::size_t ranks = all.size();
    const std::size_t half = (ranks + 1) / 2;
    const auto me = static_cast<std::size_t>(rank);
    const bool in_low = me < half;
    const std::size_t begin = in_low ? 0 : half;
    const std::size_t end = in_low ? half : ranks;
    const auto root_of = [](std::size_t tensor, std::size_t first, std::size_t last) {
      return first + tensor % (last - first);
    };

    for (std::size_t i = 0; i < all[0].size(); ++i) {
      if (root_of(i, begin, end) != me) continue;
      std::vector<torch::Tensor> group;
      for (std::size_t r = begin; r < end; ++r) group.push_back(all[r][i]);
      reduce_into(all[me][i], group, ReduceOp::kSum);
    }
    meeting.sync(rank);
    if (ranks > 1 && in_low) {
      for (std::size_t i = 0; i < all[0].size(); ++i) {
        if (root_of(i, 0, half) != me) continue;
        all[me][i].add_(all[root_of(i, half, ranks)][i].to(all[me][i].device()));
        if (op == ReduceOp::kMean) divide(all[me][i], static_cast<int64_t>(ranks));
      }
    }
    meeting.sync(rank);
    if (!in_low) {
      for (std::size_t i = 0; i < all[0].size(); ++i) {
        if (root_of(i, half, ranks) == me) all[me][i].copy_(all[root_of(i, 0, half)][i]);
      }
    }
    meeting.sync(rank);
    for (std::size_t i = 0; i < all[0].size(); ++i) {
      const std::size_t root = root_of(i, begin, end);
      if (root != me) all[me][i].copy_(all[root][i]);
    }
  }
};

}  // namespace

std::unique_ptr<CrossDeviceOps> make_hierarchical_copy() {
  return std::make_unique<HierarchicalCopy>();
}

}  // namespace cohort
