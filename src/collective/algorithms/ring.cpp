// Each rank reduces its own slice of every tensor and writes it to all: the reduce-scatter and all-gather of a ring
// all-reduce (Patarasuk and Yuan, 2009), with the hops replaced by memory that all ranks can reach: pointers
// into the ranks' CPU tensors.
#include <ATen/Functions.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "base/fail.h"
#include "base/slices.h"
#include "collective/algorithms/cross_device_sum.h"
#include "device/backend.h"
#include "ops/kernels/kernels.h"

namespace cohort {

namespace {

// Bytes that are summed before they are copied out, few enough to stay in the first-level cache.
constexpr int64_t kChunkBytes = 16 << 10;

bool has_kernel(const torch::Tensor& tensor) {
  return tensor.is_cpu() && (tensor.scalar_type() == torch::kFloat || tensor.scalar_type() == torch::kDouble);
}

// Reduces the slice in chunks: sums one, writes it to all ranks, goes on.
void reduce_slice(RankTensors all, std::size_t index, Slice slice, ReduceOp op) {
  const torch::ScalarType dtype = all[0][index].scalar_type();
  const auto item = static_cast<int64_t>(all[0][index].element_size());
  const int64_t step = kChunkBytes / item;
  const int ranks = static_cast<int>(all.size());
  alignas(64) char sum[kChunkBytes];
  std::vector<const void*> sources(all.size());
  for (int64_t at = slice.begin; at < slice.end; at += step) {
    const int64_t count = std::min(step, slice.end - at);
    for (std::size_t r = 0; r < all.size(); ++r) {
      sources[r] = static_cast<const char*>(all[r][index].data_ptr()) + at * item;
    }
    kernels::sum_into(sum, sources.data(), ranks, count, dtype);
    if (op == ReduceOp::kMean) kernels::scale(sum, 1.0 / ranks, count, dtype);
    for (const void* source : sources) {
      std::copy_n(sum, count * item, static_cast<char*>(const_cast<void*>(source)));
    }
  }
}

// Reduces a rank's slice of every tensor.
void reduce_slices(int rank, RankTensors all, ReduceOp op) {
  const int ranks = static_cast<int>(all.size());
  for (std::size_t i = 0; i < all[0].size(); ++i) {
    const Slice slice = slice_of(all[0][i].numel(), rank, ranks);
    if (slice.begin == slice.end) continue;
    if (has_kernel(all[0][i])) {
      reduce_slice(all, i, slice, op);
      continue;
    }
    std::vector<torch::Tensor> parts;
    for (const auto& tensors : all) {
      parts.push_back(tensors[i].view({-1}).slice(0, slice.begin, slice.end));
    }
    torch::Tensor& mine = parts[static_cast<std::size_t>(rank)];
    reduce_into(mine, parts, op);
    for (int other = 0; other < ranks; ++other) {
      if (other != rank) parts[static_cast<std::size_t>(other)].copy_(mine);
    }
  }
}

void ring_all_reduce(Rendezvous& /*meeting*/, int rank, RankTensors all, ReduceOp op) {
  reduce_slices(rank, all, op);
}

// Every rank's slice is reduced on a stream of its device, which reads from all and writes to all.
class RingBeside final : public SumsBeside {
 public:
  RingBeside(DevicePlaces places, std::unique_ptr<SideStreams> streams)
      : places_(std::move(places)), streams_(std::move(streams)) {}

  PointPtr mark(int rank) const override { return streams_->mark(places_.of[static_cast<std::size_t>(rank)]); }
  void require_well() const override {}

  // A graph cannot wait for a point in another one, as one device's slice waits for the tensors of the others.
  bool fits_graphs() const override { return places_.devices.size() == 1; }
  void capture(std::size_t /*device*/, const Tensors& of) override {
    if (!fits_graphs()) fail<Internal>("[collective] ring: several devices cannot add up within their graphs");
    add_up_in_first(of);
    copy_from_first(of);
  }

  Ends begin(const std::string& /*what*/, const Tensors& all, const std::vector<PointPtr>& ready) override {
    const std::lock_guard lock(mutex_);
    std::vector<torch::Tensor> used;
    for (const std::vector<torch::Tensor>& own : all) used.insert(used.end(), own.begin(), own.end());
    for (std::size_t d = 0; d < places_.devices.size(); ++d) {
      for (const PointPtr& point : ready) streams_->follow(d, point);
    }
    const auto tensors = std::make_shared<Tensors>(all);
    for (std::size_t r = 0; r < all.size(); ++r) {
      const auto reduce = [tensors, r] {
        const std::vector<std::span<torch::Tensor>> spans(tensors->begin(), tensors->end());
        reduce_slices(static_cast<int>(r), spans, ReduceOp::kSum);
      };
      streams_->begin(places_.of[r], reduce, used);
    }
    std::vector<PointPtr> ends;
    for (std::size_t d = 0; d < places_.devices.size(); ++d) ends.push_back(streams_->record(d));
    return Ends(all.size(), ends);
  }

 private:
  DevicePlaces places_;
  std::unique_ptr<SideStreams> streams_;
  std::mutex mutex_;
};

std::shared_ptr<SumsBeside> ring_beside(const std::vector<torch::Device>& of_ranks) {
  DevicePlaces places(of_ranks);
  auto streams = backend_of(places.devices.front()).make_side_streams(places.devices);
  if (streams == nullptr) return nullptr;
  return std::make_shared<RingBeside>(std::move(places), std::move(streams));
}

// A mean is multiplied by 1 / ranks as in reduce_slice(), for the sake of the same bits.
void ring_reduce(torch::Tensor& dst, const std::vector<torch::Tensor>& sources, ReduceOp op) {
  if (!has_kernel(dst)) return reduce_into(dst, sources, op);
  std::vector<torch::Tensor> contiguous;
  std::vector<const void*> pointers;
  for (const torch::Tensor& source : sources)
    pointers.push_back(contiguous.emplace_back(source.contiguous()).data_ptr());
  const auto ranks = static_cast<int>(sources.size());
  torch::Tensor sum = at::empty(dst.sizes(), dst.options());
  if (sum.numel() == 0) return;
  kernels::sum_into(sum.data_ptr(), pointers.data(), ranks, sum.numel(), sum.scalar_type());
  if (op == ReduceOp::kMean) kernels::scale(sum.data_ptr(), 1.0 / ranks, sum.numel(), sum.scalar_type());
  dst.copy_(sum);
}

}  // namespace

CrossDeviceSum make_ring() {
  return {.name = "ring", .all_reduce = ring_all_reduce, .reduce = ring_reduce, .beside = ring_beside};
}

}  // namespace cohort
