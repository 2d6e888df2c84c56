#include "wings/xla/strategy/pod.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

#include "base/error_text.h"
#include "base/fail.h"
#include "base/log.h"
#include "device/host_memory.h"
#include "wings/xla/cluster/tpu_hosts.h"
#include "wings/xla/device/backend.h"

namespace cohort {

namespace {

// A plugin is opened once in a process, with this, and asks it as long as the process lives. The membership is that of
// the pod that was entered last.
class PodProcesses final : public XlaProcesses {
 public:
  void join(int index, int count, const std::shared_ptr<Membership>& membership) {
    const std::scoped_lock lock(mutex_);
    index_ = index;
    count_ = count;
    membership_ = membership;
  }

  int count() const override {
    const std::scoped_lock lock(mutex_);
    return count_;
  }
  int index() const override {
    const std::scoped_lock lock(mutex_);
    return index_;
  }
  std::string get(const std::string& key, std::chrono::milliseconds limit) override {
    return joined()->get(key, limit);
  }
  std::optional<std::string> try_get(const std::string& key) override { return joined()->try_get(key); }
  void put(const std::string& key, const std::string& value) override { joined()->put(key, value); }
  std::optional<std::string> failure() const override {
    const std::shared_ptr<Membership> membership = current();
    return membership == nullptr ? std::nullopt : membership->failure();
  }

 private:
  std::shared_ptr<Membership> current() const {
    const std::scoped_lock lock(mutex_);
    return membership_.lock();
  }
  std::shared_ptr<Membership> joined() const {
    std::shared_ptr<Membership> membership = current();
    if (membership == nullptr) fail<Unavailable>("[strategy] the strategy of the pod is gone, and its store with it");
    return membership;
  }

  mutable std::mutex mutex_;
  int index_ = 0;
  int count_ = 1;
  std::weak_ptr<Membership> membership_;
};

const std::shared_ptr<PodProcesses>& own_processes() {
  static const auto processes = std::make_shared<PodProcesses>();
  return processes;
}

struct KeptPod {
  std::mutex mutex;
  std::optional<Pod> pod;
};
KeptPod& kept_pod() {
  static KeptPod kept;
  return kept;
}

class PodHosts final : public record::Hosts {
 public:
  explicit PodHosts(std::shared_ptr<JoinedWorkers> workers) : workers_(std::move(workers)) {}

  std::vector<Numbers> gather(const std::string& what, const Numbers& mine) override {
    return workers_->world().gather_numbers(what, mine);
  }
  std::vector<std::string> gather_texts(const std::string& mine) override {
    std::vector<std::string> texts;
    for (const torch::Tensor& each : workers_->world().all_gather(tensor_of_text(mine))) {
      texts.emplace_back(host_text(each));
    }
    return texts;
  }
  void sum(std::span<torch::Tensor> tensors) override { workers_->world().all_reduce(tensors, ReduceOp::kSum); }
  std::string name(int host) const override { return workers_->world().rank_name(host); }

 private:
  std::shared_ptr<JoinedWorkers> workers_;
};

// Holds the chips of this process against TPU_CHIPS_PER_PROCESS_BOUNDS. Devices without coordinates are no chips.
void check_chips(const std::string& speaker, const XlaClient& client) {
  const std::optional<TpuBounds> bounds = tpu_chips_of_process(process_environment());
  std::set<std::vector<int64_t>> chips;
  for (const int id : client.local_devices()) chips.insert(client.device(id).coordinates);
  chips.erase(std::vector<int64_t>{});
  if (!bounds || chips.empty() || static_cast<int>(chips.size()) == bounds->count) return;
  fail<FailedPrecondition>("[strategy] ", speaker, ": ", bounds->variable, " is ", bounds->text, ", which is ",
                           bounds->count, " chips, but the plugin ", client.plugin().name(), " has ", chips.size(),
                           " in this process");
}

}  // namespace

std::optional<Pod> enter_pod(const std::string& speaker, const ClusterResolver& resolver,
                             const MembershipOptions& options) {
  const std::optional<TaskId> task = resolver.task();
  const ClusterSpec cluster = training_cluster(speaker, resolver.cluster_spec(), task);
  if (cluster.empty()) return std::nullopt;
  KeptPod& kept = kept_pod();
  const std::scoped_lock lock(kept.mutex);
  std::optional<Pod> pod = std::exchange(kept.pod, std::nullopt);
  if (pod && pod->cluster == cluster && pod->task == *task) return pod;
  pod = Pod{.cluster = cluster,
            .task = *task,
            .membership = std::make_shared<Membership>(cluster, *task, options),
            .processes = own_processes()};
  own_processes()->join(id_in_cluster(cluster, *task), worker_count(cluster, task->type), pod->membership);
  return pod;
}

void keep_pod(const Pod& pod) {
  KeptPod& kept = kept_pod();
  const std::scoped_lock lock(kept.mutex);
  kept.pod = pod;
}

void tell_pod(const Pod& pod, const std::exception& error) noexcept {
  try {
    if (!pod.membership->failure()) pod.membership->fail(pod.task.to_string() + ": " + error_text(error));
  } catch (const std::exception& failure) {
    log().warn("[strategy] the other processes of the pod could not be told of an error: {}", failure.what());
  }
}

void check_pod(const std::string& speaker, const XlaClient& client, const std::optional<Pod>& pod) {
  const int wanted = pod ? pod->processes->count() : 1;
  if (client.num_processes() != wanted) {
    fail<FailedPrecondition>("[strategy] ", speaker, ": the plugin ", client.plugin().name(), " has devices of ",
                             client.num_processes(), " process(es), but the environment speaks of ", wanted,
                             " (TPU_PROCESS_ADDRESSES or TPU_WORKER_HOSTNAMES, else TF_CONFIG): ",
                             pod ? "each of them would drive a TPU of its own, and not one pod"
                                 : "a pod's processes have to know each other");
  }
  check_chips(speaker, client);
}

std::shared_ptr<record::Hosts> make_pod_hosts(std::shared_ptr<JoinedWorkers> workers) {
  return std::make_shared<PodHosts>(std::move(workers));
}

void end_stuck_process(Membership& membership, std::chrono::milliseconds limit) {
  if (limit.count() <= 0) return;
  // The thread may outlive what the end of a program destroys, so it has all that it needs. While it has the runner,
  // the plugin is not asked to close devices that are stuck.
  membership.on_failure([limit, runner = open_xla_runner()](const std::string& reason) {
    std::thread([limit, runner, reason] {
      std::this_thread::sleep_for(limit);
      if (runner->pod_is_idle()) return;
      std::fprintf(stderr, "[strategy] a launch cannot end, because %s; this process ends now\n", reason.c_str());
      std::_Exit(EXIT_FAILURE);
    }).detach();
  });
}

}  // namespace cohort
