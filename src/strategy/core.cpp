#include "strategy/core.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstring>

#include "base/block_cache.h"
#include "base/cpu_threads.h"
#include "base/error_text.h"
#include "base/fail.h"
#include "base/log.h"
#include "collective/local/local.h"
#include "collective/process/hierarchical.h"
#include "strategy/context.h"
#include "strategy/remote_variables.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

torch::Tensor bytes_of(const std::string& text) {
  torch::Tensor bytes = torch::empty({static_cast<int64_t>(text.size())}, torch::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

std::string text_of(const torch::Tensor& bytes) {
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

constexpr const char* kNoStdException = "an exception that is no std::exception";

bool all_on_cpu(const std::vector<LogicalDevice>& devices) {
  return std::all_of(devices.begin(), devices.end(),
                     [](const LogicalDevice& device) { return device.torch_device.is_cpu(); });
}

std::vector<torch::Device> torch_devices(const std::vector<LogicalDevice>& devices) {
  std::vector<torch::Device> list;
  for (const LogicalDevice& device : devices) list.push_back(device.torch_device);
  return list;
}

// The replicas that the topology gives this process are those that the plan has devices for.
void require_topology(const StrategyPlan& plan) {
  const std::vector<int> own = plan.topology.replicas_of(plan.workers->rank());
  if (own.size() == plan.devices.size() && plan.topology.num_processes() == plan.workers->size()) return;
  fail<InvalidArgument>("[strategy] ", plan.name, ": the topology (", plan.topology.to_string(),
                        ") gives this process ", own.size(), " replicas, but there are ", plan.devices.size(),
                        " devices and ", plan.workers->size(), " processes");
}

}  // namespace

StrategyCore::StrategyCore(StrategyPlan plan) : plan_(std::move(plan)) {
  if (!plan_.workers) plan_.workers = std::make_shared<WorkerGroup>();
  require_topology(plan_);
  first_replica_ = topology().replicas_of(worker_rank()).front();
  if (plan_.parameter_devices.empty()) plan_.parameter_devices = plan_.devices;
  if (plan_.exchange.bytes_per_pack > 0 && plan_.exchange.num_packs != 1) {
    fail<InvalidArgument>("[strategy] ", plan_.name, ": num_packs is ", plan_.exchange.num_packs,
                          " and bytes_per_pack ", plan_.exchange.bytes_per_pack,
                          ", which replaces it; give one of them");
  }
  const int count = num_local_replicas();
  const bool on_cpu = all_on_cpu(plan_.devices);
  if (on_cpu) install_block_cache();
  shares_memory_ = on_cpu && all_on_cpu(plan_.parameter_devices);
  // On GPUs the host threads only feed the devices.
  threads_per_replica_ = plan_.exchange.threads_per_replica;
  if (threads_per_replica_ < 0) {
    fail<InvalidArgument>("[strategy] ", plan_.name, ": threads_per_replica is ", threads_per_replica_,
                          ", wanted 0 (cores / replicas) or more");
  }
  const int cores = std::max(1, hardware_cores() / std::max(workers().sharing_cores(), plan_.sharing_cores));
  if (threads_per_replica_ == 0) threads_per_replica_ = on_cpu ? std::max(1, cores / count) : 1;
  const bool spin = count <= cores;
  rendezvous_ = std::make_unique<Rendezvous>(count, plan_.exchange.timeout, spin);
  ops_ = make_cross_device_ops(central() ? "reduction_to_one_device" : plan_.exchange.cross_device_ops,
                               torch_devices(plan_.devices));
  for (int i = 0; i < count; ++i) {
    local_communicators_.push_back(make_local(*rendezvous_, *ops_, i));
    // One process adds no way between its replicas.
    if (num_workers() == 1) continue;
    communicators_.push_back(make_hierarchical(*local_communicators_.back(), workers().world()));
  }
  for (int i = 0; i < count; ++i) replicas_.push_back(std::make_unique<Replica>(*this, i));
  threads_ = std::make_unique<ReplicaThreads>(count, spin);
}

StrategyCore::~StrategyCore() = default;

Communicator& StrategyCore::group(std::string_view axis, int local_id) const {
  (void)topology().axis(axis);
  return communicator(local_id);
}

torch::Device StrategyCore::parameter_device(int local_id) const {
  const auto& devices = plan_.parameter_devices;
  return devices[central() ? 0 : static_cast<std::size_t>(local_id)].torch_device;
}

int StrategyCore::num_workers() const {
  return workers().size();
}

int StrategyCore::worker_rank() const {
  return workers().rank();
}

void StrategyCore::broadcast_from_chief(std::span<torch::Tensor> tensors) const {
  if (!tensors.empty()) workers().world().broadcast(tensors, 0);
}

std::string StrategyCore::text_from_chief(const std::string& text) const {
  torch::Tensor size = torch::tensor(static_cast<int64_t>(text.size()), torch::kLong);
  broadcast_from_chief({&size, 1});
  torch::Tensor bytes = worker_rank() == 0 ? bytes_of(text) : torch::empty({size.item<int64_t>()}, torch::kByte);
  broadcast_from_chief({&bytes, 1});
  return text_of(bytes);
}

std::vector<std::string> StrategyCore::gather_texts(const std::string& text) const {
  std::vector<std::string> texts;
  for (const torch::Tensor& bytes : workers().world().all_gather(bytes_of(text))) texts.push_back(text_of(bytes));
  return texts;
}

bool StrategyCore::any_worker(const std::string& what, bool mine) const {
  const auto all = workers().world().gather_numbers(what, {mine ? 1 : 0});
  return std::any_of(all.begin(), all.end(), [](const auto& numbers) { return numbers[0] != 0; });
}

void StrategyCore::on_chief(const std::string& what, const std::function<void()>& fn) const {
  std::exception_ptr error;
  try {
    if (worker_rank() == 0) fn();
  } catch (...) {
    error = std::current_exception();
  }
  const auto ends = workers().world().gather_numbers(what, {error ? 1 : 0});
  if (error) std::rethrow_exception(error);
  if (ends.front()[0] != 0) {
    fail<Unavailable>("[strategy] ", what, " failed on ", workers().world().rank_name(0), "; its own log says how");
  }
}

RemoteVariables* StrategyCore::remote() const {
  return plan_.remote ? &plan_.remote->variables() : nullptr;
}

void StrategyCore::set_seed(uint64_t seed) {
  for (const auto& replica : replicas_) replica->seed(seed);
}

void StrategyCore::call_job(detail::Job& job, Replica& replica) {
  const auto local = static_cast<std::size_t>(replica.local_id());
  const ReplicaContext context(&replica);
  const DeviceScope device(plan_.devices[local]);
  const c10::DeviceGuard guard(replica.device());
  // From an empty share nobody can tell how many values an example has: where there is one the replicas do not go by
  // the sizes of their shares.
  replica.begin_run(job.global_size, job.global_size < 0 || job.some_empty ? -1 : job.share_sizes[local]);
  job.run(replica);
}

void StrategyCore::run_alone(detail::Job& job) {
  const IntraOpThreads threads(threads_per_replica_);
  call_job(job, replica(0));
}

void StrategyCore::run_replica(detail::Job& job, int local_id, std::vector<Outcome>& outcomes) {
  Outcome& outcome = outcomes[static_cast<std::size_t>(local_id)];
  const auto failed = [&](const std::string& what, bool secondary) {
    outcome = {std::current_exception(), secondary || rendezvous_->aborted()};
    rendezvous_->abort(c10::str("replica ", local_id, " failed: ", what));
    // A replica of this process may be waiting for other workers, and they for it.
    if (!outcome.secondary) workers().fail(c10::str("replica ", replica(local_id).id(), " failed: ", what));
  };
  try {
    const IntraOpThreads threads(threads_per_replica_);
    call_job(job, replica(local_id));
  } catch (const Cancelled& error) {
    failed(error_text(error), true);
  } catch (const std::exception& error) {
    failed(error_text(error), false);
  } catch (...) {
    failed(kNoStdException, false);
  }
  rendezvous_->leave(local_id);
}

void StrategyCore::run(const std::shared_ptr<detail::Job>& job) {
  if (broken_) {
    fail<FailedPrecondition>("[strategy] ", plan_.name, ": a replica of an earlier run() never came back, so this ",
                             "strategy cannot be used any more; make a new one");
  }
  try {
    run_local(job);
  } catch (const std::exception& error) {
    workers().fail(error_text(error));
    throw;
  } catch (...) {
    workers().fail(kNoStdException);
    throw;
  }
}

void StrategyCore::run_local(const std::shared_ptr<detail::Job>& job) {
  if (num_local_replicas() == 1) return run_alone(*job);
  struct Shared {
    std::shared_ptr<StrategyCore> core;
    std::shared_ptr<detail::Job> job;
    at::ThreadLocalState caller;
    std::vector<Outcome> outcomes;
  };
  const auto shared = std::make_shared<Shared>();
  shared->core = shared_from_this();
  shared->job = job;
  shared->outcomes.resize(plan_.devices.size());

  const auto work = std::make_shared<const ReplicaThreads::Work>([shared](int local_id) {
    if (local_id == 0) {
      shared->core->run_replica(*shared->job, 0, shared->outcomes);
      return;
    }
    const at::ThreadLocalStateGuard as_caller(shared->caller);
    shared->core->run_replica(*shared->job, local_id, shared->outcomes);
  });
  if (!threads_->run(work, plan_.exchange.timeout)) give_up_on_missing(shared->outcomes);
  rethrow_first(shared->outcomes);
}

void StrategyCore::give_up_on_missing(std::vector<Outcome>& outcomes) {
  broken_ = true;
  const std::vector<int> missing = threads_->missing();
  std::string names;
  for (const int local_id : missing) names += c10::str(names.empty() ? "" : ", ", local_id);
  const std::string message =
      c10::str("[strategy] ", plan_.name, ": replica(s) ", names, " had not returned from their function ",
               to_text(plan_.exchange.timeout), " after replica 0 did");
  rendezvous_->abort(message);
  // What a replica that did come back met is nearer to the cause. The others may still be writing their outcome.
  for (int local_id = 0; local_id < num_local_replicas(); ++local_id) {
    if (std::find(missing.begin(), missing.end(), local_id) != missing.end()) continue;
    const std::exception_ptr error = std::exchange(outcomes[static_cast<std::size_t>(local_id)].error, nullptr);
    if (error) std::rethrow_exception(error);
  }
  throw DeadlineExceeded(message);
}

// Takes the errors out of the outcomes, which a replica's thread may be the last to let go of: an exception is to die
// in the thread that catches it.
void StrategyCore::rethrow_first(std::vector<Outcome>& outcomes) {
  const std::vector<Outcome> ends = std::exchange(outcomes, {});
  const Outcome* first = nullptr;
  for (const Outcome& outcome : ends) {
    if (!outcome.error) continue;
    if (first == nullptr || (first->secondary && !outcome.secondary)) first = &outcome;
  }
  if (first == nullptr) {
    rendezvous_->reopen();
    return;
  }
  rendezvous_->reset();
  std::rethrow_exception(first->error);
}

void StrategyCore::meet(int local_id, std::string_view what, void* mine,
                        const std::function<void(std::span<void* const>)>& lead) {
  if (num_local_replicas() == 1) {
    const ReplicaContext merged(nullptr);
    lead({&mine, 1});
    return;
  }
  rendezvous_->arrive(local_id, {.what = what}, mine);
  std::exception_ptr error;
  if (local_id == 0) {
    std::vector<void*> all;
    for (int i = 0; i < num_local_replicas(); ++i) all.push_back(rendezvous_->data(i));
    try {
      const ReplicaContext merged(nullptr);
      lead(all);
    } catch (const std::exception& failure) {
      error = std::current_exception();
      rendezvous_->abort(c10::str("the function given to ", what, " failed: ", error_text(failure)));
    }
  }
  rendezvous_->depart(local_id);
  if (error) std::rethrow_exception(error);
  if (rendezvous_->aborted()) fail<Cancelled>("[strategy] replica ", local_id, " in ", what, ": the function failed");
}

}  // namespace cohort
