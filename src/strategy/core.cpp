#include "strategy/core.h"

#include <c10/core/DeviceGuard.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <optional>
#include <set>

#include "base/cpu_threads.h"
#include "base/error_text.h"
#include "base/fail.h"
#include "base/log.h"
#include "collective/local/local.h"
#include "device/backend.h"
#include "device/host_memory.h"
#include "device/host_random.h"
#include "device/numa.h"
#include "strategy/context.h"
#include "strategy/holders.h"
#include "strategy/memory_use.h"
#include "strategy/plan_checks.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

std::vector<const DeviceBackend*> backends_of(const std::vector<LogicalDevice>& devices) {
  std::vector<const DeviceBackend*> list;
  for (const LogicalDevice& device : devices) list.push_back(&backend_of(device.torch_device));
  return list;
}

std::vector<torch::Device> torch_devices(const std::vector<LogicalDevice>& devices) {
  std::vector<torch::Device> list;
  for (const LogicalDevice& device : devices) list.push_back(device.torch_device);
  return list;
}

// Recorded work of several replicas begins together or not at all.
void require_joining(const StrategyPlan& plan) {
  const auto joins = [](const DeviceBackend* backend) { return backend->joins(); };
  if (std::none_of(plan.backends.begin(), plan.backends.end(), joins)) return;
  if (std::all_of(plan.backends.begin(), plan.backends.end(), joins)) return;
  fail<InvalidArgument>("[strategy] ", plan.name, ": some of the devices are XLA's, which record their work, and some ",
                        "are not; a strategy has replicas of one kind");
}

// Says that a replica runs while it lives.
class InRun {
 public:
  explicit InRun(std::atomic<bool>& flag) : flag_(flag) { flag_ = true; }
  InRun(const InRun&) = delete;
  InRun& operator=(const InRun&) = delete;
  ~InRun() { flag_ = false; }

 private:
  std::atomic<bool>& flag_;
};

// Returns how many forks are between this process and the one that called this first. A process that was forked off has
// none of its parent's threads.
int forks() {
  static std::atomic<int> count{0};
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] { ++count; });
  return count.load(std::memory_order_relaxed);
}

// Refuses a process that was forked off after the strategy was made, whose threads it lacks, or after any strategy has
// run, when LibTorch's pools have threads. Both would wait for these without end.
void require_no_fork(int forks_at_birth, const std::string& strategy) {
  static const int forks_at_first_run = forks();
  if (forks() == forks_at_birth && forks() == forks_at_first_run) return;
  fail<FailedPrecondition>("[strategy] ", strategy, ": run() was called in a process that was forked off after ",
                           forks() == forks_at_birth ? "another strategy had run" : "the strategy was made",
                           ", and has none of its threads; fork before the first run() and make strategies in the ",
                           "child, or start another program (posix_spawn)");
}

// Refuses a second run() while it lives.
class RunsAlone {
 public:
  RunsAlone(std::atomic<bool>& running, const std::string& strategy) : running_(running) {
    if (!running_.exchange(true)) return;
    fail<FailedPrecondition>("[strategy] ", strategy, ": run() was called before another run() of this strategy has ",
                             "returned; call it from one thread at a time, or make a strategy for each thread");
  }
  RunsAlone(const RunsAlone&) = delete;
  RunsAlone& operator=(const RunsAlone&) = delete;
  ~RunsAlone() { running_ = false; }

 private:
  std::atomic<bool>& running_;
};

}  // namespace

std::shared_ptr<WorkerGroup> only_this_process() {
  return std::make_shared<WorkerGroup>();
}

MakeRunner whole_shares() {
  class WholeShare final : public ReplicaRunner {
   public:
    void run(detail::Job& job, Replica& replica) override { job.run(replica); }
  };
  return [](StrategyCore& /*core*/, int /*local_id*/) { return std::make_unique<WholeShare>(); };
}

StrategyCore::StrategyCore(StrategyPlan plan) : plan_(std::move(plan)), forks_(forks()) {
  require_possible(plan_);
  first_replica_ = topology().replicas_of(worker_rank()).front();
  make_shares();
  make_replicas();
  make_groups();
}

StrategyCore::~StrategyCore() = default;

// Workers take the same shares or different ones; one that has some of another's could not read its input alone.
void StrategyCore::make_shares() {
  for (int i = 0; i < num_local_replicas(); ++i) {
    const int share = topology().share_of(replica_id(i)) - topology().share_of(first_replica_);
    local_shares_.push_back(static_cast<std::size_t>(share));
    if (local_shares_.back() == share_leaders_.size()) share_leaders_.push_back(i);
  }
  std::map<std::set<int>, int> known;
  std::set<int> taken;
  for (int rank = 0; rank < topology().num_processes(); ++rank) {
    std::set<int> shares;
    for (const int replica : topology().replicas_of(rank)) shares.insert(topology().share_of(replica));
    const bool is_new = !known.contains(shares);
    for (const int share : shares) {
      if (!is_new || taken.insert(share).second) continue;
      fail<InvalidArgument>("[strategy] ", plan_.name, ": worker ", rank, " takes share ", share,
                            " of the batch with another worker, and others without it (", topology().to_string(),
                            "); wanted as many devices a worker as share a model, a multiple or a divisor of it");
    }
    if (is_new) known.emplace(shares, static_cast<int>(known.size()));
    if (rank == worker_rank()) leads_pipeline_ = is_new;
    pipelines_.push_back(known.at(shares));
  }
  if (has_stages(*this)) {  // what a function returns is right in the process of the last stage
    const int own = pipelines_[static_cast<std::size_t>(worker_rank())];
    leads_pipeline_ = std::find(pipelines_.rbegin(), pipelines_.rend(), own) - pipelines_.rbegin() ==
                      topology().num_processes() - 1 - worker_rank();
  }
  divides_models_ = num_replicas_in_sync() < topology().size();
}

void StrategyCore::make_replicas() {
  const int count = num_local_replicas();
  const bool on_cpu = all_on_cpu(plan_.devices);
  if (plan_.backends.empty()) plan_.backends = backends_of(plan_.devices);
  require_joining(plan_);
  for (const DeviceBackend* backend : plan_.backends) backend->prepare();
  const int cores = std::max(1, hardware_cores() / std::max(workers().sharing_cores(), plan_.sharing_cores));
  threads_per_replica_ = plan_.exchange.threads_per_replica;
  // On GPUs the host threads only feed the devices, unless they update there.
  const int devices = count * plan_.devices_per_replica;
  const bool computes = on_cpu || plan_.sharding.offload_states;
  if (threads_per_replica_ == 0) threads_per_replica_ = computes ? std::max(1, cores / devices) : 1;
  if (plan_.sharding.offload_states && computes_on_host()) {
    warn_once("[strategy] " + plan_.name + ": sharding.offload_states changes nothing for replicas on CPUs, whose " +
              "states lie in the host's memory as it is");
  }
  const bool spin = devices <= cores;
  rendezvous_ = std::make_unique<Rendezvous>(count, plan_.exchange.timeout, spin);
  for (int i = 0; i < count; ++i) {
    replicas_.push_back(std::make_unique<Replica>(*this, i));
    runners_.push_back(plan_.runner(*this, i));
    near_.push_back(backend(i).near_processors(replicas_.back()->device()));
    in_run_.emplace_back(false);
  }
  launch_ = make_launch(*this, spin);
  sum_ = plan_.sum.all_reduce ? plan_.sum
                              : make_cross_device_sum(plan_.exchange.cross_device_ops, torch_devices(plan_.devices),
                                                      plan_.exchange.timeout);
  facts_ = launch_->facts();
  facts_.add_in_place = on_cpu && (facts_.add_in_place || sum_.name == "ring");
  facts_.in_place = workers().path_in_place();
  // An outer step is taken by a single worker, too.
  if (plan_.local_sgd.sync_every > 0) facts_.in_place = GradientPath::kLocalSteps;
  facts_.recorded = joins();
  facts_.sharded = plan_.sharding.stage > 0;
  facts_.shares_gradients = plan_.sharding.stage > 1 && topology().size() > 1;
}

void StrategyCore::make_groups() {
  for (int i = 0; i < num_local_replicas(); ++i) {
    whole_.push_back(workers().over_all(make_local(*rendezvous_, sum_, i)));
  }
  for (const Axis& axis : topology().axes()) {
    lines_[axis.name] = group_by([&](int replica) { return topology().line_number(axis.name, replica); });
  }
  in_sync_ = group_by([&](int replica) { return topology().replicas_in_sync(replica).front(); });
  // Gradients of a part of the replicas are added up by messages: where they lie are those of all replicas.
  if (divides_models_) facts_.add_in_place = false;
}

StrategyCore::Ends StrategyCore::group_by(const std::function<int(int)>& color) const {
  std::set<int> colors;
  for (int replica = 0; replica < topology().size(); ++replica) colors.insert(color(replica));
  if (colors.size() == 1) return whole_;
  std::vector<std::future<std::unique_ptr<Communicator>>> ends;  // each replica makes its own, all at the same time
  for (int local_id = 0; local_id < num_local_replicas(); ++local_id) {
    ends.push_back(std::async(std::launch::async, [this, &color, local_id] {
      const int replica = replica_id(local_id);
      return whole_[static_cast<std::size_t>(local_id)]->split(color(replica), replica);
    }));
  }
  Ends parts;
  for (auto& end : ends) parts.push_back(end.get());
  return parts;
}

Communicator& StrategyCore::group(std::string_view axis, int local_id) const {
  return *lines_.at(topology().axis(axis).name)[static_cast<std::size_t>(local_id)];
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
  torch::Tensor bytes = worker_rank() == 0 ? tensor_of_text(text) : torch::empty({size.item<int64_t>()}, torch::kByte);
  broadcast_from_chief({&bytes, 1});
  return std::string(host_text(bytes));
}

std::vector<std::string> StrategyCore::gather_texts(const std::string& text) const {
  std::vector<std::string> texts;
  for (const torch::Tensor& bytes : workers().world().all_gather(tensor_of_text(text)))
    texts.emplace_back(host_text(bytes));
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

std::shared_ptr<SumsBeside> StrategyCore::sums_beside() const {
  WorkerGroup::Beside here{.devices = torch_devices(plan_.devices)};
  const auto computes_alone = [](const DeviceBackend* backend) { return !backend->is_host() && !backend->records(); };
  if (divides_models_) {
    here.reason = "replicas divide models";
  } else if (!std::all_of(plan_.backends.begin(), plan_.backends.end(), computes_alone)) {
    here.reason = c10::str("not all of ", here.devices, " compute beside the host");
  } else if (launch_->has_threads()) {
    if (sum_.beside) here.local = sum_.beside(here.devices);
    if (!here.local) here.reason = c10::str("cross_device_ops ", sum_.name, " add up when all replicas are there");
  }
  return workers().beside(std::move(here));
}

PathChoice StrategyCore::gradient_path(bool has_kernels) const {
  PathFacts facts = facts_;
  facts.has_kernels = has_kernels;
  return placement().path(facts);
}

bool StrategyCore::offloads_states(int local_id) const {
  return plan_.sharding.offload_states && !backend(local_id).is_host();
}

bool StrategyCore::computes_on_host() const {
  return std::all_of(plan_.backends.begin(), plan_.backends.end(),
                     [](const DeviceBackend* backend) { return backend->is_host(); });
}

void StrategyCore::set_seed(uint64_t seed) {
  for (const auto& replica : replicas_) {
    replica->seed(seed);
    backend(replica->local_id()).seed(replica->device(), replica->generator().current_seed());
  }
}

void StrategyCore::call(detail::Job& job, int local_id) {
  const auto local = static_cast<std::size_t>(local_id);
  const InRun in_run(in_run_[local]);
  const IntraOpThreads threads(threads_per_replica_);
  Replica& own = replica(local_id);
  const ReplicaContext context(&own);
  const DeviceScope device(plan_.devices[local]);
  const c10::DeviceGuard guard(own.device());
  // From an empty share nobody can tell how many values an example has: where there is one the replicas do not go by
  // the sizes of their shares.
  own.begin_run(job.global_size, job.global_size < 0 || job.some_empty ? -1 : job.share_sizes[local]);
  std::optional<NearProcessors> bound;
  if (!near_[local].empty()) bound.emplace(near_[local]);
  try {
    runners_[local]->run(job, own);
  } catch (c10::Error& error) {
    rethrow_explained(error, plan_.devices[local], memory_holders_);
    if (job.global_size >= 0 && splits_batches() && job.share_sizes[local] <= 1) {
      error.add_context(c10::str("replica ", own.id(), " of ", num_replicas_in_sync(), " has ", job.share_sizes[local],
                                 " of the batch's ", job.global_size, " examples; a module that needs more of them ",
                                 "wants larger batches, and drop_remainder for the last one"));
    }
    throw;
  }
  if (joins()) {
    begin_together(local_id, "the end of the function given to run()");
  } else {
    backend(local_id).flush(own.device());
  }
}

bool StrategyCore::joins() const {
  return plan_.backends.front()->joins();
}

void StrategyCore::begin_together(int local_id, std::string_view what) {
  launch_->meet(local_id, what, nullptr, [this](std::span<void* const>) {
    plan_.backends.front()->flush_together(torch_devices(plan_.devices));
  });
}

void StrategyCore::begin_outside() const {
  if (!plan_.records_with_others) return plan_.backends.front()->flush_together(torch_devices(plan_.devices));
  for (int i = 0; i < num_local_replicas(); ++i) backend(i).flush(replica(i).device());
}

void StrategyCore::gather_steps(int64_t steps) const {
  if (plan_.records_with_others) begin_outside();
  if (joins()) backend(0).gather_steps(torch_devices(plan_.devices), steps, plan_.loop_input_bytes);
}

int64_t StrategyCore::gathered_steps() const {
  return backend(0).gathered_steps();
}

void StrategyCore::run(const std::shared_ptr<detail::Job>& job) {
  require_no_fork(forks_, plan_.name);
  const RunsAlone alone(running_, plan_.name);
  optimizers_.begin_run();
  try {
    if (plan_.records_with_others && gathered_steps() == 0) begin_outside();
    // Workers do not draw the same numbers from LibTorch's own generator, as for torch::nn::Dropout.
    if (workers().membership() == nullptr) {
      launch_->run(job);
    } else {
      with_own_host_stream(static_cast<uint64_t>(replica(0).id()), [&] { launch_->run(job); });
    }
  } catch (const std::exception& error) {
    workers().fail(error_text(error));
    throw;
  } catch (...) {
    workers().fail(kNoStdException);
    throw;
  }
}

}  // namespace cohort
