// Two groups of half the ranks: each group adds up at its root, the roots exchange, and the sums are copied back. The
// root rotates with the tensor's index, so that the work spreads. It follows TensorFlow's HierarchicalCopyAllReduce,
// which assumes the links of an 8-GPU DGX-1; elsewhere ring or nccl is faster.
#include "collective/algorithms/cross_device_sum.h"

namespace cohort {

namespace {

void tree_all_reduce(Rendezvous& meeting, int rank, RankTensors all, ReduceOp op) {
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

// Adds the two halves one after the other, and then both.
void tree_reduce(torch::Tensor& dst, const std::vector<torch::Tensor>& sources, ReduceOp op) {
  const auto middle = sources.begin() + static_cast<std::ptrdiff_t>((sources.size() + 1) / 2);
  torch::Tensor sum = dst.new_empty(dst.sizes());
  reduce_into(sum, {sources.begin(), middle}, ReduceOp::kSum);
  if (middle != sources.end()) {
    torch::Tensor high = dst.new_empty(dst.sizes());
    reduce_into(high, {middle, sources.end()}, ReduceOp::kSum);
    sum.add_(high);
  }
  if (op == ReduceOp::kMean) divide(sum, static_cast<int64_t>(sources.size()));
  dst.copy_(sum);
}

}  // namespace

CrossDeviceSum make_hierarchical_copy() {
  return {.name = "hierarchical_copy", .all_reduce = tree_all_reduce, .reduce = tree_reduce};
}

}  // namespace cohort
