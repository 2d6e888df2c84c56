// A message is packed, its sum is scattered to the owners along the axis, and where the batch has other axes, too, the
// slices are added up along these. At most one message travels while the next one is packed.
#include "wings/sharding/step/scattered_gradients.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/fail.h"
#include "cohort/strategy.h"
#include "cohort/trace.h"
#include "step/exchange/watched_backward.h"

namespace cohort {

namespace {

// Returns 0 for an undefined tensor. A sparse one has memory in two others.
int64_t bytes_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  const bool sparse = tensor.is_sparse();
  return static_cast<int64_t>(sparse ? tensor._values().nbytes() + tensor._indices().nbytes() : tensor.nbytes());
}

int64_t bytes_of(const std::vector<torch::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const torch::Tensor& tensor : tensors) bytes += bytes_of(tensor);
  return bytes;
}

}  // namespace

ScatteredGradients::ScatteredGradients(StrategyCore& core, const FlatParameters& flat, const ShardPlan& plan,
                                       bool overlaps)
    : core_(core),
      flat_(flat),
      plan_(plan),
      wire_(core.plan().exchange.gradient_compression),
      units_of_(flat.parameters().size()),
      steps_(static_cast<std::size_t>(core.num_local_replicas())) {
  for (std::size_t u = 0; u < plan_.units().size(); ++u) {
    for (const std::size_t p : plan_.parameters_in(u)) units_of_[p].push_back(u);
  }
  for (int r = 0; r < core.num_local_replicas(); ++r) {
    to_host_.push_back(core.offloads_states(r) ? core.backend(r).make_stream(core.replica(r).device()) : nullptr);
  }
  if (!overlaps) return;
  for (const Axis& axis : core.topology().axes()) {
    if (axis.role != AxisRole::kBatch) continue;
    Communicator& whole = core.group(axis.name, /*local_id=*/0);
    own_ends_[axis.name] = whole.split(/*color=*/0, /*key=*/whole.rank());
  }
}

ScatteredGradients::~ScatteredGradients() {
  // The others may never come to what was begun, for which the groups would wait.
  for (const ReplicaStep& step : steps_) {
    if (!step.sent) continue;
    for (const auto& [axis, end] : own_ends_) end->abort("the optimizer was destroyed within a step");
  }
}

Communicator& ScatteredGradients::line(const std::string& axis, int local_id) const {
  const auto own = own_ends_.find(axis);
  return own == own_ends_.end() ? core_.group(axis, local_id) : *own->second;
}

int ScatteredGradients::owner_of(int local_id) const {
  return core_.group(core_.plan().sharding.axis, local_id).rank();
}

torch::Tensor ScatteredGradients::pack(std::size_t unit, int local_id, const std::vector<torch::Tensor>& gradients,
                                       int64_t size, torch::ScalarType dtype) const {
  const ShardUnit& own = plan_.units()[unit];
  const torch::Tensor& copy = flat_.groups()[own.group].copies[static_cast<std::size_t>(local_id)];
  torch::Tensor message = torch::empty({size}, copy.options().dtype(dtype));
  int64_t at = 0;
  const auto fill_up_to = [&](int64_t end) {
    if (at < end) message.slice(0, at, end).zero_();
    at = end;
  };
  for (const std::size_t p : plan_.parameters_in(unit)) {
    if (!gradients[p].defined()) continue;
    const FlatParameter& parameter = flat_.parameters()[p];
    const int64_t begin = std::max(own.begin(), parameter.offset);
    const int64_t end = std::min(own.begin() + own.size(), parameter.offset + parameter.size);
    fill_up_to(begin - own.begin());
    const torch::Tensor dense = flat_.laid_out(gradients[p], p);
    const torch::Tensor run = dense.as_strided({parameter.size}, {1}, dense.storage_offset());
    at = end - own.begin();
    message.slice(0, begin - own.begin(), at).copy_(run.slice(0, begin - parameter.offset, end - parameter.offset));
  }
  fill_up_to(size);
  return message;
}

// The units of a group come in descending order.
void ScatteredGradients::give_up(std::size_t unit, std::vector<torch::Tensor>& gradients) const {
  for (const std::size_t p : plan_.parameters_in(unit)) {
    if (flat_.parameters()[p].offset >= plan_.units()[unit].begin()) gradients[p] = torch::Tensor();
  }
}

torch::ScalarType ScatteredGradients::dtype_of(std::size_t unit) const {
  return flat_.groups()[plan_.units()[unit].group].dtype;
}

// Returns the bytes of a message and of the slice that comes of it.
int64_t ScatteredGradients::message_bytes(std::size_t unit) const {
  const auto sent = static_cast<int64_t>(c10::elementSize(wire_.dtype_of(dtype_of(unit))));
  if (plan_.whole()) return plan_.units()[unit].size() * sent;
  return plan_.width(unit) * (plan_.owners() * sent + static_cast<int64_t>(c10::elementSize(dtype_of(unit))));
}

void ScatteredGradients::note_peak(int local_id, std::size_t unit) {
  ReplicaStep& step = step_of(local_id);
  const int64_t under_way = step.sent ? step.sent->bytes : 0;
  const int64_t sums = stream(local_id) == nullptr ? bytes_of(step.slices) : 0;
  step.peak = std::max(step.peak, bytes_of(step.gradients) + sums + message_bytes(unit) + under_way);
}

void ScatteredGradients::begin(int local_id) {
  ReplicaStep& step = step_of(local_id);
  step = ReplicaStep{.begun = true,
                     .gradients = std::vector<torch::Tensor>(flat_.parameters().size()),
                     .came = std::vector<char>(flat_.parameters().size(), 0),
                     .slices = std::vector<torch::Tensor>(plan_.units().size())};
  for (std::size_t u = 0; u < plan_.units().size(); ++u) {
    step.missing.push_back(static_cast<int64_t>(plan_.parameters_in(u).size()));
  }
  if (local_id > 0) return;
  begin_ = Clock::now();
  end_ = {};
  timeline_ = {};
}

void ScatteredGradients::end_backward() {
  end_ = Clock::now();
}

void ScatteredGradients::take(int local_id, std::size_t parameter, torch::Tensor gradient) {
  const torch::NoGradGuard no_grad;
  put(step_of(local_id), parameter, std::move(gradient));
  send_complete(local_id);
}

void ScatteredGradients::put(ReplicaStep& step, std::size_t parameter, torch::Tensor gradient) const {
  if (step.came[parameter] != 0) {
    fail<FailedPrecondition>("[optimizer] minimize: the gradient of ", flat_.parameters()[parameter].name,
                             " comes twice in one backward; take gradients() and apply_gradients() for such a loss");
  }
  step.came[parameter] = 1;
  if (!units_of_[parameter].empty()) step.gradients[parameter] = std::move(gradient);
  for (const std::size_t unit : units_of_[parameter]) --step.missing[unit];
}

void ScatteredGradients::send_complete(int local_id) {
  ReplicaStep& step = step_of(local_id);
  for (; step.next < plan_.units().size() && step.missing[step.next] == 0; ++step.next) {
    const TraceSpan span("communication", "reduce-scatter");
    const std::size_t unit = step.next;
    note_peak(local_id, unit);
    const int64_t size = plan_.whole() ? plan_.units()[unit].size() : plan_.width(unit) * plan_.owners();
    const torch::Tensor message = pack(unit, local_id, step.gradients, size, wire_.dtype_of(dtype_of(unit)));
    give_up(unit, step.gradients);
    if (ParameterShards* const shards = shards_of(flat_)) shards->release(plan_.units()[unit].group, local_id);
    if (step.sent) finish(local_id, *step.sent);
    step.sent = send(unit, local_id, message);
    if (!own_ends_.empty()) continue;
    finish(local_id, *step.sent);
    step.sent.reset();
  }
}

// Begins the sum of a message, which the returned function waits for; at once where messages do not travel alone.
ScatteredGradients::Sent ScatteredGradients::send(std::size_t unit, int local_id, const torch::Tensor& message) {
  const ShardUnit& own = plan_.units()[unit];
  Communicator& owners = line(core_.plan().sharding.axis, local_id);
  const Slice slice = own.slice(owners.rank());
  const torch::ScalarType dtype = dtype_of(unit);
  const auto part = [=, begin = own.begin()] {
    return message.slice(0, slice.begin - begin, slice.end - begin).to(dtype, /*non_blocking=*/false, /*copy=*/true);
  };
  Sent sent{.unit = unit, .bytes = message_bytes(unit)};
  const double ready = in_seconds(Clock::now() - begin_);
  const auto note = [this, local_id, ready, bytes = static_cast<int64_t>(message.nbytes())](const auto& times) {
    if (local_id > 0) return;
    timeline_.messages.push_back({.bytes = bytes,
                                  .ready = ready,
                                  .begin = in_seconds(times.begin - begin_),
                                  .end = in_seconds(times.end - begin_)});
  };
  if (own_ends_.empty()) {
    Work<>::Times times{.begin = Clock::now()};
    torch::Tensor all = message;
    if (plan_.whole()) {
      owners.all_reduce({&all, 1}, ReduceOp::kSum);
      sent.sum = part;
    } else {
      sent.sum = [sum = owners.reduce_scatter(message, ReduceOp::kSum).slice(0, 0, slice.size()).to(dtype)] {
        return sum;
      };
    }
    times.end = Clock::now();
    note(times);
  } else if (plan_.whole()) {
    sent.sum = [work = owners.all_reduce_async({message}, ReduceOp::kSum), part, note] {
      work.wait();
      note(work.times());
      return part();
    };
  } else {
    sent.sum = [work = owners.reduce_scatter_async(message, ReduceOp::kSum), slice, dtype, note] {
      torch::Tensor sum = work.wait();
      note(work.times());
      return sum.slice(0, 0, slice.size()).to(dtype);
    };
  }
  return sent;
}

void ScatteredGradients::finish(int local_id, const Sent& sent) {
  torch::Tensor sum = sent.sum();
  for (const Axis& axis : core_.topology().axes()) {
    if (axis.name == core_.plan().sharding.axis || axis.role != AxisRole::kBatch) continue;
    sum = sum.contiguous();
    wire_.all_reduce(line(axis.name, local_id), sum);
  }
  step_of(local_id).slices[sent.unit] = kept(local_id, sum);
}

// Returns a sum where it is kept until the update. On its way to the host it is beside the work of the device.
torch::Tensor ScatteredGradients::kept(int local_id, const torch::Tensor& sum) const {
  DeviceStream* to_host = stream(local_id);
  if (to_host == nullptr) return sum;
  torch::Tensor here = core_.backend(local_id).host_memory(sum.numel(), sum.scalar_type());
  to_host->fetch(sum, here);
  return here;
}

void ScatteredGradients::wait_for_host(int local_id) const {
  if (stream(local_id) == nullptr) return;
  const TraceSpan span("communication", "gradients to the host");
  stream(local_id)->synchronize();
}

std::vector<torch::Tensor> ScatteredGradients::sums(int local_id, std::vector<torch::Tensor> gradients) {
  ReplicaStep& step = step_of(local_id);
  if (!step.begun) begin(local_id);
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    if (step.came[p] == 0) put(step, p, std::move(gradients[p]));
  }
  send_complete(local_id);
  if (step.sent) finish(local_id, *step.sent);
  step.sent.reset();
  wait_for_host(local_id);
  step.begun = false;
  return std::exchange(step.slices, {});
}

std::vector<torch::Tensor> ScatteredGradients::own(int local_id, const std::vector<torch::Tensor>& gradients) const {
  const int owner = owner_of(local_id);
  std::vector<torch::Tensor> slices;
  for (std::size_t u = 0; u < plan_.units().size(); ++u) {
    const ShardUnit& unit = plan_.units()[u];
    const Slice slice = unit.slice(owner);
    const torch::Tensor whole = pack(u, local_id, gradients, unit.size(), dtype_of(u));
    slices.push_back(kept(local_id, whole.slice(0, slice.begin - unit.begin(), slice.end - unit.begin()).clone()));
  }
  wait_for_host(local_id);
  return slices;
}

ExchangeTimeline ScatteredGradients::timeline() const {
  if (end_ == Clock::time_point()) return {};
  ExchangeTimeline timeline = timeline_;
  timeline.backward = in_seconds(end_ - begin_);
  return timeline;
}

}  // namespace cohort
