#include "cohort/strategy.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/access.h"
#include "base/fail.h"
#include "collective/algorithms/cross_device_sum.h"
#include "strategy/absent.h"
#include "strategy/context.h"
#include "strategy/core.h"
#include "strategy/holders.h"
#include "strategy/steps_together.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

void require_values(std::string_view method, const StrategyCore& core, std::size_t values) {
  if (values != static_cast<std::size_t>(core.num_local_replicas())) {
    fail<InvalidArgument>("[strategy] ", method, ": got ", values, " values, wanted one for each of the ",
                          core.num_local_replicas(), " local replicas");
  }
}

// Returns the values of the replicas that take different shares of the batch: what others have is the same, or absent.
std::vector<torch::Tensor> of_shares(const StrategyCore& core, const PerReplica<torch::Tensor>& values) {
  std::vector<torch::Tensor> list;
  for (const int leader : core.share_leaders())
    list.push_back(zeros_if_absent(values[static_cast<std::size_t>(leader)]));
  return list;
}

// Reduces over the replicas of this process, then over the processes.
torch::Tensor reduce_values(const StrategyCore& core, ReduceOp op, const std::vector<torch::Tensor>& values,
                            torch::Device destination) {
  for (const torch::Tensor& value : values) {
    if (value.sizes() == values.front().sizes()) continue;
    fail<InvalidArgument>("[strategy] reduce: the replicas' shapes differ, ", values.front().sizes(), " and ",
                          value.sizes(), "; give an axis to reduce over");
  }
  torch::Tensor result = torch::empty_like(values.front(), values.front().options().device(destination));
  const torch::NoGradGuard no_grad;
  reduce_into(result, values, ReduceOp::kSum);
  if (!core.leads_pipeline()) result.zero_();
  core.workers().world().all_reduce({&result, 1}, ReduceOp::kSum);
  if (op == ReduceOp::kMean) divide(result, core.num_replicas_in_sync());
  return result;
}

// Replicas that differ in other axes than the batch's compute on the same examples.
void require_alike(const StrategyCore& core, const std::vector<int64_t>& sizes) {
  for (int i = 0; i < core.num_local_replicas(); ++i) {
    const int leader = core.share_leaders()[core.local_share(i)];
    const int64_t own = sizes[static_cast<std::size_t>(i)], first = sizes[static_cast<std::size_t>(leader)];
    if (own == first) continue;
    fail<InvalidArgument>("[strategy] run: local replicas ", leader, " and ", i, " take the same share of the batch (",
                          core.topology().to_string(), "), but got ", first, " and ", own, " examples");
  }
}

// Returns the examples of all workers where they are known without asking: those of this one, if all take the same.
std::optional<int64_t> known_total(const StrategyCore& core, int64_t mine) {
  const std::vector<int>& pipelines = core.pipelines();
  const bool same = std::all_of(pipelines.begin(), pipelines.end(), [](int pipeline) { return pipeline == 0; });
  return same ? mine : core.workers().known_total(mine);
}

}  // namespace

namespace detail {

void run_job(StrategyCore& core, const std::shared_ptr<Job>& job) {
  core.run(job);
}

int num_local_replicas(const StrategyCore& core) {
  return core.num_local_replicas();
}

void move_to_replica(torch::Tensor& tensor, const Replica& replica) {
  if (!tensor.defined() || !tensor.device().is_cpu() || replica.device().is_cpu()) return;
  tensor = tensor.to(replica.device());
}

void move_to_replica(Example& example, const Replica& replica) {
  if (replica.device().is_cpu()) return;
  for (torch::Tensor* each : {&example.x, &example.y, &example.weight, &example.mask}) move_to_replica(*each, replica);
  for (torch::Tensor& each : example.more) move_to_replica(each, replica);
  for (NamedTensors* list : {&example.inputs, &example.targets, &example.weights, &example.masks}) {
    for (auto& [name, each] : *list) move_to_replica(each, replica);
  }
}

void note_batch(const StrategyCore& core, Job& job, const PerReplica<Example>& batch, int64_t global_size,
                bool some_empty) {
  require_values("run", core, batch.size());
  if (!job.share_sizes.empty()) return;  // the first batch among the arguments counts
  int64_t total = 0;
  for (const Example& share : batch) job.share_sizes.push_back(share.size());
  for (const int leader : core.share_leaders()) total += job.share_sizes[static_cast<std::size_t>(leader)];
  require_alike(core, job.share_sizes);
  // The sizes of the other workers are not known here.
  job.global_size = global_size < 0 ? known_total(core, total).value_or(-1) : global_size;
  const auto is_empty = [](int64_t size) { return size == 0; };
  job.some_empty = some_empty || std::any_of(job.share_sizes.begin(), job.share_sizes.end(), is_empty);
}

}  // namespace detail

int64_t InputContext::per_replica_batch_size(int64_t global_batch_size) const {
  if (global_batch_size % num_replicas_in_sync != 0) {
    fail<InvalidArgument>("[strategy] a global batch of ", global_batch_size, " does not divide among ",
                          num_replicas_in_sync, " replicas");
  }
  return global_batch_size / num_replicas_in_sync;
}

void Strategy::require_cross_replica(std::string_view method) const {
  const Replica* replica = thread_context().replica;
  if (replica == nullptr) return;
  fail<FailedPrecondition>(
      "[strategy] ", method, ": called inside replica ", replica->id(), " of ", Access::core(*replica).plan().name,
      "; it needs the cross-replica context: call it outside run(), ", "or through Replica::merge_call");
}

std::string_view Strategy::name() const {
  return core_->plan().name;
}
int Strategy::num_replicas_in_sync() const {
  return core_->num_replicas_in_sync();
}
int Strategy::num_local_replicas() const {
  return core_->num_local_replicas();
}
const Topology& Strategy::topology() const {
  return core_->topology();
}
const std::vector<LogicalDevice>& Strategy::worker_devices() const {
  return core_->plan().devices;
}
const std::vector<LogicalDevice>& Strategy::parameter_devices() const {
  return core_->placement().devices();
}
std::string_view Strategy::cross_device_ops() const {
  return core_->cross_device_sum().name;
}
bool Strategy::should_checkpoint() const {
  return core_->worker_rank() == 0;
}
bool Strategy::should_save_summary() const {
  return core_->worker_rank() == 0;
}
void Strategy::set_seed(uint64_t seed) const {
  core_->set_seed(seed);
}

void Strategy::run_loop(int64_t steps, const std::function<void(int64_t)>& step) const {
  require_cross_replica("run_loop");
  if (steps < 0) fail<InvalidArgument>("[strategy] run_loop: steps is ", steps, ", wanted 0 or more");
  StepsTogether together(*core_, steps);
  together.announce();
  for (int64_t i = 0; i < steps; ++i) step(i);
  together.begin();
}

torch::Tensor Strategy::reduce(ReduceOp op, const PerReplica<torch::Tensor>& value) const {
  return reduce_to(op, value, core_->parameter_device(0));
}

torch::Tensor Strategy::reduce_to(ReduceOp op, const PerReplica<torch::Tensor>& value,
                                  torch::Device destination) const {
  require_cross_replica("reduce");
  require_values("reduce", *core_, value.size());
  if (!has_stages(*core_)) {
    if (core_->communicator(0).size() == 1) return value[0].to(destination);
  }
  return reduce_values(*core_, op, of_shares(*core_, value), destination);
}

std::vector<torch::Tensor> Strategy::batch_reduce_to(
    ReduceOp op, const std::vector<std::pair<PerReplica<torch::Tensor>, torch::Device>>& values) const {
  std::vector<torch::Tensor> reduced;
  reduced.reserve(values.size());
  for (const auto& [value, destination] : values) reduced.push_back(reduce_to(op, value, destination));
  return reduced;
}

torch::Tensor Strategy::reduce(ReduceOp op, const PerReplica<torch::Tensor>& value, at::IntArrayRef axis) const {
  // A sum over no dimensions would be one over all of them.
  if (axis.empty()) return reduce(op, value);
  require_cross_replica("reduce");
  require_values("reduce", *core_, value.size());
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> sums;
  int64_t count = 0;
  for (const torch::Tensor& each : of_shares(*core_, value)) {
    int64_t size = 1;
    for (const int64_t dim : axis) {
      if (dim < -each.dim() || dim >= each.dim()) {
        fail<InvalidArgument>("[strategy] reduce: axis ", dim, " of a value of rank ", each.dim());
      }
      size *= each.size(dim);
    }
    count += size;
    sums.push_back(each.sum(axis));
  }
  torch::Tensor sum = reduce_values(*core_, ReduceOp::kSum, sums, core_->parameter_device(0));
  if (op == ReduceOp::kSum) return sum;
  torch::Tensor total = torch::tensor(core_->leads_pipeline() ? count : 0, torch::kLong);
  core_->workers().world().all_reduce({&total, 1}, ReduceOp::kSum);
  return sum / total.item<int64_t>();
}

torch::Tensor Strategy::reduce(ReduceOp op, const torch::Tensor& value) const {
  require_cross_replica("reduce");
  if (op == ReduceOp::kSum && num_replicas_in_sync() > 1) {
    fail<InvalidArgument>("[strategy] reduce: a value that is the same on all replicas cannot be reduced with SUM; ",
                          "return it from run() to make it a per-replica value, or use MEAN");
  }
  return value;
}

torch::Tensor Strategy::gather(const PerReplica<torch::Tensor>& value, int64_t axis) const {
  require_cross_replica("gather");
  require_values("gather", *core_, value.size());
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& each : of_shares(*core_, value)) {
    if (each.layout() != torch::kStrided) {
      fail<InvalidArgument>("[strategy] gather: sparse values cannot be gathered");
    }
    if (each.dim() == 0) fail<InvalidArgument>("[strategy] gather: needs values of rank 1 or more, got a scalar");
    if (axis < -each.dim() || axis >= each.dim()) {
      fail<InvalidArgument>("[strategy] gather: axis ", axis, " of a value of rank ", each.dim());
    }
    parts.push_back(each.to(core_->parameter_device(0)));
  }
  const torch::NoGradGuard no_grad;
  torch::Tensor local = parts.size() == 1 ? parts.front() : at::cat(parts, axis);
  if (!core_->leads_pipeline()) local = local.narrow(axis, 0, 0);
  return at::cat(core_->workers().world().all_gather(local.movedim(axis, 0)), 0).movedim(0, axis);
}

InputContext Strategy::input_context() const {
  const std::vector<int>& pipelines = core_->pipelines();
  return {.num_input_pipelines = 1 + *std::max_element(pipelines.begin(), pipelines.end()),
          .input_pipeline_id = pipelines[static_cast<std::size_t>(core_->worker_rank())],
          .num_replicas_in_sync = num_replicas_in_sync()};
}

ValueContext Strategy::value_context(int local_replica) const {
  return {.replica_id_in_sync_group = core_->replica(local_replica).id(),
          .num_replicas_in_sync = num_replicas_in_sync()};
}

}  // namespace cohort
