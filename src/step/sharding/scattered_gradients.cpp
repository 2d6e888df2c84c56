// A message is packed, its sum is scattered to the owners along the axis, and where the batch has other axes, too, the
// slices are added up along these.
#include "step/sharding/scattered_gradients.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "cohort/trace.h"

namespace cohort {

namespace {

int64_t bytes_of(const std::vector<torch::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const torch::Tensor& tensor : tensors) bytes += tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  return bytes;
}

}  // namespace

ScatteredGradients::ScatteredGradients(StrategyCore& core, const FlatParameters& flat, const ShardPlan& plan)
    : core_(core), flat_(flat), plan_(plan), peaks_(static_cast<std::size_t>(core.num_local_replicas())) {}

int ScatteredGradients::owner_of(int local_id) const {
  return core_.group(core_.plan().sharding.axis, local_id).rank();
}

std::vector<torch::Tensor> ScatteredGradients::empty_shard(int local_id) const {
  std::vector<torch::Tensor> shard;
  for (std::size_t g = 0; g < flat_.groups().size(); ++g) {
    const torch::Tensor& copy = flat_.groups()[g].copies[static_cast<std::size_t>(local_id)];
    shard.push_back(torch::empty({plan_.size(g, owner_of(local_id))}, copy.options()));
  }
  return shard;
}

torch::Tensor ScatteredGradients::pack(std::size_t unit, int local_id, const std::vector<torch::Tensor>& gradients,
                                       int64_t size) const {
  const ShardUnit& own = plan_.units()[unit];
  const torch::Tensor& copy = flat_.groups()[own.group].copies[static_cast<std::size_t>(local_id)];
  torch::Tensor message = torch::zeros({size}, copy.options());
  for (const std::size_t p : plan_.parameters_in(unit)) {
    if (!gradients[p].defined()) continue;
    const FlatParameter& parameter = flat_.parameters()[p];
    const int64_t begin = std::max(own.begin(), parameter.offset);
    const int64_t end = std::min(own.begin() + own.size(), parameter.offset + parameter.size);
    const torch::Tensor dense = flat_.laid_out(gradients[p], p);
    const torch::Tensor run = dense.as_strided({parameter.size}, {1}, dense.storage_offset());
    message.slice(0, begin - own.begin(), end - own.begin())
        .copy_(run.slice(0, begin - parameter.offset, end - parameter.offset));
  }
  return message;
}

// The units of a group come in descending order.
void ScatteredGradients::give_up(std::size_t unit, std::vector<torch::Tensor>& gradients) const {
  for (const std::size_t p : plan_.parameters_in(unit)) {
    if (flat_.parameters()[p].offset >= plan_.units()[unit].begin()) gradients[p] = torch::Tensor();
  }
}

// Returns the bytes of a message and of the slice that comes of it.
int64_t ScatteredGradients::message_bytes(std::size_t unit) const {
  const auto item = static_cast<int64_t>(c10::elementSize(flat_.groups()[plan_.units()[unit].group].dtype));
  if (plan_.whole()) return plan_.units()[unit].size() * item;
  return plan_.width(unit) * (plan_.owners() + 1) * item;
}

torch::Tensor ScatteredGradients::scatter(std::size_t unit, int local_id,
                                          const std::vector<torch::Tensor>& gradients) const {
  const ShardUnit& own = plan_.units()[unit];
  const ShardingOptions& sharding = core_.plan().sharding;
  Communicator& line = core_.group(sharding.axis, local_id);
  const Slice slice = own.slice(line.rank());
  torch::Tensor sum;
  if (plan_.whole()) {
    torch::Tensor message = pack(unit, local_id, gradients, own.size());
    line.all_reduce({&message, 1}, ReduceOp::kSum);
    sum = message.slice(0, slice.begin - own.begin(), slice.end - own.begin());
  } else {
    const torch::Tensor message = pack(unit, local_id, gradients, plan_.width(unit) * plan_.owners());
    sum = line.reduce_scatter(message, ReduceOp::kSum).slice(0, 0, slice.size());
  }
  for (const Axis& axis : core_.topology().axes()) {
    if (axis.name == sharding.axis || axis.role != AxisRole::kBatch) continue;
    sum = sum.contiguous();
    core_.group(axis.name, local_id).all_reduce({&sum, 1}, ReduceOp::kSum);
  }
  return sum;
}

std::vector<torch::Tensor> ScatteredGradients::sums(int local_id, std::vector<torch::Tensor> gradients) {
  const TraceSpan span("communication", "reduce-scatter");
  const int owner = owner_of(local_id);
  std::vector<torch::Tensor> shard = empty_shard(local_id);
  int64_t& peak = peaks_[static_cast<std::size_t>(local_id)] = 0;
  for (std::size_t u = 0; u < plan_.units().size(); ++u) {
    const ShardUnit& unit = plan_.units()[u];
    peak = std::max(peak, bytes_of(gradients) + bytes_of(shard) + message_bytes(u));
    const torch::Tensor sum = scatter(u, local_id, gradients);
    give_up(u, gradients);
    shard[unit.group].narrow(0, plan_.at(u, owner), unit.slice(owner).size()).copy_(sum);
  }
  return shard;
}

std::vector<torch::Tensor> ScatteredGradients::own(int local_id, const std::vector<torch::Tensor>& gradients) const {
  const int owner = owner_of(local_id);
  std::vector<torch::Tensor> shard = empty_shard(local_id);
  for (std::size_t u = 0; u < plan_.units().size(); ++u) {
    const ShardUnit& unit = plan_.units()[u];
    const Slice slice = unit.slice(owner);
    shard[unit.group]
        .narrow(0, plan_.at(u, owner), slice.size())
        .copy_(
            pack(u, local_id, gradients, unit.size()).slice(0, slice.begin - unit.begin(), slice.end - unit.begin()));
  }
  return shard;
}

}  // namespace cohort
