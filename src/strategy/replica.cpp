#include "cohort/replica.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/access.h"
#include "base/fail.h"
#include "base/first_derivative.h"
#include "cohort/strategy.h"
#include "device/backend.h"
#include "strategy/context.h"
#include "strategy/core.h"
#include "strategy/replica_scope.h"
#include "strategy/saved_communicator.h"

namespace cohort {

namespace detail {

int local_id(const Replica& replica) {
  return replica.local_id();
}

void bad_replica_index(std::size_t index, std::size_t size) {
  fail<InvalidArgument>("[strategy] per-replica value: index ", index, ", but there are ", size, " local replicas");
}

}  // namespace detail

namespace {

class AllReduce : public torch::autograd::Function<AllReduce> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& value,
                               int64_t communicator, int64_t op) {
    context->saved_data["communicator"] = communicator;
    context->saved_data["op"] = op;
    return reduced_copy(to_communicator(communicator), value, static_cast<ReduceOp>(op));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    require_first_derivative("[strategy] ", "all_reduce()");
    const auto op = static_cast<ReduceOp>(context->saved_data["op"].toInt());
    return {reduced_copy(to_communicator(context->saved_data["communicator"]), gradients[0], op), {}, {}};
  }
};

class AllGather : public torch::autograd::Function<AllGather> {
 public:
  // Gathers along dimension 0.
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& value,
                               int64_t communicator) {
    Communicator& group = to_communicator(communicator);
    const std::vector<torch::Tensor> parts = group.all_gather(value);
    int64_t offset = 0;
    for (int r = 0; r < group.rank(); ++r) offset += parts[static_cast<std::size_t>(r)].size(0);
    context->saved_data["communicator"] = communicator;
    context->saved_data["offset"] = offset;
    context->saved_data["rows"] = value.size(0);
    return at::cat(parts, 0);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    require_first_derivative("[strategy] ", "all_gather()");
    Communicator& group = to_communicator(context->saved_data["communicator"]);
    const torch::Tensor sum = reduced_copy(group, gradients[0], ReduceOp::kSum);
    return {sum.narrow(0, context->saved_data["offset"].toInt(), context->saved_data["rows"].toInt()), {}};
  }
};

uint64_t mix(uint64_t seed, uint64_t stream) {  // splitmix64 (Steele, Lea and Flood, 2014)
  uint64_t z = seed + (stream + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

Replica::Replica(StrategyCore& core, int local_id)
    : core_(core),
      local_id_(local_id),
      id_(core.topology().share_of(core.replica_id(local_id))),
      device_(core.plan().devices[static_cast<std::size_t>(local_id)].torch_device),
      generator_(core.backend(local_id).make_generator(device_)) {
  seed(generator_.current_seed());
}

Replica::~Replica() = default;

void Replica::seed(uint64_t seed) {
  generator_.set_current_seed(mix(seed, static_cast<uint64_t>(id_)));
}

void Replica::begin_run(int64_t global_size, int64_t share_size) {
  global_size_ = global_size;
  share_size_ = share_size;
}

int Replica::num_replicas_in_sync() const {
  return core_.num_replicas_in_sync();
}

const LogicalDevice& Replica::logical_device() const {
  return core_.plan().devices[static_cast<std::size_t>(local_id_)];
}

Strategy Replica::strategy() const {
  return Access::make<Strategy>(core_.shared_from_this());
}

Replica* Replica::current() {
  return thread_context().replica;
}

at::Generator& Replica::generator() {
  ReplicaScope* const call = thread_context().replica_scope;
  return call == nullptr ? generator_ : call->generator();
}

Communicator& Replica::communicator() const {
  require_whole_share("communicator()");
  return core_.communicator(local_id_);
}

Communicator& Replica::group(std::string_view axis) const {
  ReplicaScope* const scope = thread_context().replica_scope;
  return scope == nullptr ? core_.group(axis, local_id_) : scope->group(axis);
}

std::optional<int64_t> Replica::global_batch_size() const {
  return global_size_ < 0 ? std::nullopt : std::optional(global_size_);
}

void Replica::barrier() {
  communicator().barrier();
}

torch::Tensor Replica::all_reduce(ReduceOp op, const torch::Tensor& value) {
  require_whole_share("all_reduce()");
  if (communicator().size() == 1) return value;
  if (at::GradMode::is_enabled() && value.requires_grad()) {
    return AllReduce::apply(value, to_number(communicator()), static_cast<int64_t>(op));
  }
  return reduced_copy(communicator(), value, op);
}

std::vector<torch::Tensor> Replica::all_reduce(ReduceOp op, const std::vector<torch::Tensor>& values) {
  std::vector<torch::Tensor> reduced;
  reduced.reserve(values.size());
  for (const torch::Tensor& value : values) reduced.push_back(all_reduce(op, value));
  return reduced;
}

torch::Tensor Replica::all_gather(const torch::Tensor& value, int64_t axis) {
  if (value.dim() == 0) fail<InvalidArgument>("[strategy] all_gather: needs a tensor of rank 1 or more, got a scalar");
  if (axis < -value.dim() || axis >= value.dim()) {
    fail<InvalidArgument>("[strategy] all_gather: axis ", axis, " of a tensor of rank ", value.dim());
  }
  if (communicator().size() == 1) return value;
  const torch::Tensor rows = value.movedim(axis, 0).contiguous();
  return AllGather::apply(rows, to_number(communicator())).movedim(0, axis);
}

torch::Tensor Replica::global_mean(const torch::Tensor& each, const torch::Tensor& weight) {
  if (each.dim() == 0) {
    fail<InvalidArgument>("[strategy] global_mean: needs one value an example, got a scalar: compute the loss without ",
                          "reducing it (torch::kNone)");
  }
  int64_t values = 1;  // an example
  for (int64_t i = 1; i < each.dim(); ++i) values *= each.size(i);
  int64_t count = 0;
  const ReplicaScope* const call = thread_context().replica_scope;
  if (call != nullptr && call->examples() >= 0) {
    if (global_size_ < 0) {
      fail<Unimplemented>(
          "[strategy] global_mean: a pipeline beside other workers does not ask how many examples they ",
          "have; take the batches of Strategy::distribute(), which say so");
    }
    if (each.size(0) != call->examples()) {
      fail<InvalidArgument>("[strategy] global_mean: got values of shape ", each.sizes(), " for ", call->examples(),
                            " examples; a pipeline gives the function one microbatch at a time, and takes one row an ",
                            "example, as [examples, ...]");
    }
    count = global_size_ * values;
  } else if (global_size_ >= 0 && each.size(0) == share_size_) {
    count = global_size_ * values;
  } else {
    torch::Tensor total = torch::tensor(each.numel(), torch::kLong).to(device_);
    communicator().all_reduce({&total, 1}, ReduceOp::kSum);
    count = total.item<int64_t>();
  }
  if (count == 0) return each.sum();
  const double total = static_cast<double>(count) / core_.placement().step_weight();  // others have the rest
  if (!weight.defined()) return each.sum() / total;
  std::vector<int64_t> shape(static_cast<std::size_t>(each.dim()), 1);
  shape[0] = each.size(0);
  const torch::Tensor spread = weight.dim() == 1 ? weight.view(shape) : weight;
  return (each * spread).sum() / total;
}

void Replica::meet(std::string_view what, void* mine, const std::function<void(std::span<void* const>)>& lead) {
  require_whole_share(what);
  core_.launch().meet(local_id_, what, mine, lead);
}

}  // namespace cohort
