#include "strategy/worker_group.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/cpu_threads.h"
#include "base/error_text.h"
#include "base/fail.h"
#include "base/log.h"
#include "cluster/own_host.h"
#include "collective/algorithms/hierarchical.h"
#include "collective/algorithms/levels.h"
#include "collective/algorithms/shared_sum.h"
#include "collective/devices/nccl.h"
#include "collective/devices/sums_over_processes.h"
#include "collective/local/alone.h"
#include "collective/process/transports.h"
#include "device/backend.h"
#include "rpc/local_end.h"
#include "rpc/security.h"

namespace cohort {

ClusterSpec training_cluster(std::string_view strategy, const ClusterSpec& cluster, const std::optional<TaskId>& task) {
  if (cluster.empty()) return {};
  if (!task) {
    fail<InvalidArgument>("[strategy] ", strategy, ": the cluster ", cluster.to_json(),
                          " came without a task; say which one this process is");
  }
  require_task(cluster, *task);
  if (task->type == "evaluator") return {};
  if (task->type == "ps") {
    fail<InvalidArgument>("[strategy] ", strategy, ": this process is ", task->to_string(),
                          ", wanted a chief or a worker; parameter servers belong to another strategy");
  }
  std::map<std::string, ClusterSpec::Tasks> jobs;
  for (const char* job : {"chief", "worker"}) {
    if (cluster.has_job(job)) jobs[job] = cluster.jobs().at(job);
  }
  ClusterSpec training(std::move(jobs));
  return worker_count(training, task->type) > 1 ? training : ClusterSpec();
}

void require_known(const CommunicationOptions& options) {
  static_cast<void>(levels_named(options.algorithm, 1));
  std::string known = "auto";
  for (const std::string_view name : transport_names()) known += c10::str(", ", name);
  for (const char* other : {"auto", "nccl"}) {
    if (options.implementation == other) return;
  }
  if (find_transport(options.implementation) != nullptr) return;
  fail<InvalidArgument>("[strategy] multi_worker_mirrored: the communication \"", options.implementation,
                        "\" is not known, only ", known, " and nccl are");
}

namespace {

std::string choose_communication(const CommunicationOptions& options, const std::string& resolver, bool on_gpus) {
  if (options.implementation == "auto") {
    if (on_gpus && has_nccl()) return "nccl";
    return std::string(automatic_transport(resolver));
  }
  if (options.implementation == "nccl" && !has_nccl()) {
    fail_unbuilt(
        "[strategy] multi_worker_mirrored: NCCL between processes",
        "a build with LibTorch for CUDA and nccl.h has it; ring carries tensors of GPUs through the host's memory");
  }
  if (options.implementation == "nccl" && !on_gpus) {
    fail<InvalidArgument>(
        "[strategy] multi_worker_mirrored: nccl needs replicas on GPUs, this worker's are on the CPU");
  }
  return options.implementation;
}

// Returns whether this kind of communication needs no addresses of the cluster.
bool connects_itself(const std::string& kind) {
  const TransportRow* row = find_transport(kind);
  return row != nullptr && row->connects_itself;
}

// The machine (containers on it share the id) and the cores that this process may use: those of its affinity, or a
// quota of them that belongs to its container.
std::string machine_and_cores() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return text;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) text += "," + std::to_string(cpu);
  }
  std::error_code none;
  if (hardware_cores() < CPU_COUNT(&set)) text += std::filesystem::read_symlink("/proc/self/ns/cgroup", none).string();
  return text;
}

// Returns what a worker told of itself, or an empty object if that is something else.
nlohmann::json parse_info(const std::string& text) {
  nlohmann::json info = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  return info.is_object() ? info : nlohmann::json::object();
}

std::vector<std::string> names_of(const std::vector<LogicalDevice>& devices) {
  std::vector<std::string> names;
  for (const LogicalDevice& device : devices) names.push_back(device.name());
  return names;
}

// Returns the devices that a worker told of, as devices of its task.
std::vector<DeviceSpec> parse_devices(const std::string& strategy, const nlohmann::json& info, const TaskId& task) {
  std::vector<DeviceSpec> devices;
  const nlohmann::json names = info.value("devices", nlohmann::json());
  const nlohmann::json replicas = info.value("replicas", nlohmann::json());
  const auto is_text = [](const nlohmann::json& name) { return name.is_string(); };
  if (!names.is_array() || !std::all_of(names.begin(), names.end(), is_text) || replicas != names.size()) {
    fail<InvalidArgument>("[strategy] ", strategy, ": ", task.to_string(), " has told of ", replicas.dump(),
                          " replicas on the devices ", names.dump(), ", wanted a name for each replica");
  }
  for (const nlohmann::json& name : names) {
    DeviceSpec spec = DeviceSpec::parse(name.get<std::string>());
    spec.job = task.type;
    spec.task = task.index;
    devices.push_back(spec.canonical());
  }
  return devices;
}

// Returns the addresses that a worker told of.
std::vector<std::string> parse_addresses(const std::string& strategy, const nlohmann::json& info, const TaskId& task) {
  const nlohmann::json list = info.value("addresses", nlohmann::json());
  const auto is_text = [](const nlohmann::json& name) { return name.is_string(); };
  if (list.is_array() && std::all_of(list.begin(), list.end(), is_text)) return list.get<std::vector<std::string>>();
  fail<InvalidArgument>("[strategy] ", strategy, ": ", task.to_string(), " has told of the addresses ", list.dump(),
                        ", wanted a list of texts");
}

bool is_v6(const std::string& address) {
  return address.find(':') != std::string::npos;
}

// Fails if other machines can reach the host.
void require_loopback(const std::string& host) {
  if (is_loopback(host, "[strategy] multi_worker_mirrored")) return;
  fail<FailedPrecondition>("[strategy] multi_worker_mirrored: ", host, " can be reached from other machines, and ",
                           "nothing says who may: start the job with cohort launch, give all workers a secret or ",
                           "certificates (MembershipOptions::security, --secret_file, --tls_ca), or allow it ",
                           "(allow_insecure, --insecure) in a network that you trust");
}

}  // namespace

WorkerGroup::WorkerGroup() : WorkerGroup(std::make_unique<ProcessCommunicator>(make_alone(), ProcessGroupOptions{})) {}

WorkerGroup::WorkerGroup(std::unique_ptr<ProcessCommunicator> world) : world_(std::move(world)) {}

WorkerGroup::~WorkerGroup() = default;

JoinedWorkers::JoinedWorkers(const WorkerGroupOptions& options) : WorkerGroup(nullptr), options_(options) {
  const bool on_gpus = is_gpu(options.devices.front().torch_device);
  const std::string kind = choose_communication(options.communication, options.resolver, on_gpus);
  if (connects_itself(kind) && !on_gpus && options.communication.overlap.value_or(false)) {
    cohort::fail<InvalidArgument>("[strategy] ", options.strategy, ": communication.overlap is true, but over ", kind,
                                  " gradients of CPUs leave after backward; wanted implementation \"ring\"");
  }
  if (!connects_itself(kind)) {
    await_own_name(options.cluster, options.task,
                   {.limit = options.membership.start_timeout, .report_interval = options.membership.report_interval});
    addresses_ = own_addresses(options.cluster, options.task);
  }
  check_members(enter(own_info(kind)));
  try {
    world_ = connect(kind);
  } catch (const Error& error) {
    fail(error_text(error));  // the others would wait for this worker
    throw;
  }
  if (overlaps()) gradients_ = world_->split_processes(/*color=*/0, /*key=*/rank());
}

std::string JoinedWorkers::own_info(const std::string& communication) const {
  const std::optional<bool> overlap = options_.communication.overlap;
  nlohmann::json info{{"replicas", options_.devices.size()},
                      {"devices", names_of(options_.devices)},
                      {"communication", communication},
                      {"overlap", overlap ? (*overlap ? "on" : "off") : "auto"},
                      {"shared memory", options_.communication.shared_memory},
                      {"algorithm", options_.communication.algorithm},
                      {"cores", machine_and_cores()},
                      {"addresses", addresses_},
                      {"told", options_.told}};
  for (const auto& [name, value] : options_.alike) info[name] = value;
  return info.dump();
}

// Enters the cluster and returns what each of its workers tells of itself.
std::vector<std::string> JoinedWorkers::enter(const std::string& info) {
  if (options_.entered == nullptr) {
    MembershipOptions membership = options_.membership;
    membership.info = info;
    membership_ = std::make_shared<Membership>(options_.cluster, options_.task, membership);
    return membership_->infos();
  }
  membership_ = options_.entered;
  const auto key = [](const TaskId& task) { return "strategy/info/" + task.to_string(); };
  membership_->put(key(options_.task), info);
  std::vector<std::string> infos;
  for (const TaskId& task : membership_->tasks()) {
    infos.push_back(membership_->get(key(task), options_.membership.start_timeout));
  }
  return infos;
}

bool JoinedWorkers::overlaps() const {
  const bool messages = world_->name() == "gloo" || world_->name() == "tcp";
  return messages && options_.communication.overlap.value_or(sharing_cores_ < size());
}

// A group of its own, because the replicas may speak with each other within backward.
std::shared_ptr<SumsBeside> JoinedWorkers::beside(Beside here) const {
  if (!options_.communication.overlap.value_or(true)) return nullptr;
  if (here.reason && options_.communication.overlap) {
    cohort::fail<InvalidArgument>(
        "[strategy] ", options_.strategy,
        ": communication.overlap is true, but gradients leave after backward: ", *here.reason);
  }
  const auto able = world_->gather_numbers("sums beside backward", {here.reason ? 0 : 1});
  if (!std::all_of(able.begin(), able.end(), [](const auto& numbers) { return numbers[0] == 1; })) return nullptr;
  return make_sums_over_processes(here.devices, std::move(here.local),
                                  world_->split_processes(/*color=*/0, /*key=*/rank()), options_.communication.timeout);
}

std::shared_ptr<Communicator> JoinedWorkers::over_all(std::shared_ptr<Communicator> local) const {
  struct Ends {
    std::shared_ptr<Communicator> local;
    std::unique_ptr<Communicator> all;  // uses the other one, so it is destroyed first
  };
  const auto ends = std::make_shared<Ends>();
  ends->local = std::move(local);
  ends->all = make_hierarchical(*ends->local, world());
  return {ends, ends->all.get()};
}

// NCCL moves tensors only: what the workers have to agree on goes over the ring.
std::unique_ptr<ProcessCommunicator> JoinedWorkers::connect(const std::string& kind) const {
  const std::shared_ptr<Membership>& members = membership_;
  const JobSecurity security = job_security(options_.membership.security, options_.membership.allow_insecure);
  Meeting meeting{
      .rank = id_in_cluster(options_.cluster, options_.task),
      .size = worker_count(options_.cluster, options_.task.type),
      .host = host_,
      .prefix = "collective/transport/",
      .identity = tls_identity(security.security),
      .machine = this_machine(),
      .timeout = options_.communication.timeout,
      .put = [members](const std::string& key, const std::string& value) { members->put(key, value); },
      .get = [members](const std::string& key, std::chrono::milliseconds limit) { return members->get(key, limit); },
      .find = [members](const std::string& key) { return members->try_get(key); }};
  if (!meeting.identity && !security.allow_insecure && !connects_itself(kind)) require_loopback(meeting.host);
  std::unique_ptr<Transport> transport = make_transport(kind == "nccl" ? "ring" : kind, meeting);
  std::shared_ptr<Communicator> devices;
  if (kind == "nccl") {
    meeting.prefix = "collective/nccl/";
    devices = make_nccl(meeting);
  }
  return std::make_unique<ProcessCommunicator>(
      std::move(transport), ProcessGroupOptions{.agreement = {.membership = membership_,
                                                              .timeout = options_.communication.timeout,
                                                              .algorithm = options_.communication.algorithm},
                                                .shared_memory = options_.communication.shared_memory,
                                                .devices = std::move(devices),
                                                .device_type = options_.devices.front().torch_device.type()});
}

// Checks that the workers are alike. Every one comes to the same verdict.
void JoinedWorkers::check_members(const std::vector<std::string>& infos) {
  const auto& tasks = membership_->tasks();
  std::vector<std::string> keys = {"replicas", "communication", "overlap", "shared memory", "algorithm"};
  for (const auto& [name, value] : options_.alike) keys.push_back(name);
  nlohmann::json first = parse_info(infos.front());
  const std::string cores = machine_and_cores();
  sharing_cores_ = 0;
  std::vector<std::vector<std::string>> addresses;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    nlohmann::json info = parse_info(infos[i]);
    if (info["cores"] == cores) ++sharing_cores_;
    for (const std::string& key : keys) {
      if (info[key] == first[key] && !info[key].is_null()) continue;
      cohort::fail<InvalidArgument>("[strategy] ", options_.strategy, ": the workers differ in ", key, ": ",
                                    tasks.front().to_string(), " has ", first[key].dump(), ", ", tasks[i].to_string(),
                                    " has ", info[key].dump());
    }
    devices_.push_back(parse_devices(options_.strategy, info, tasks[i]));
    addresses.push_back(parse_addresses(options_.strategy, info, tasks[i]));
    if (!info["told"].is_string()) {
      cohort::fail<InvalidArgument>("[strategy] ", options_.strategy, ": ", tasks[i].to_string(), " has told ",
                                    info["told"].dump(), ", wanted a text");
    }
    told_.push_back(info["told"]);
  }
  host_ = choose_host(addresses);
  log().info("[strategy] {} of {} workers, {} replicas each", membership_->task().to_string(), tasks.size(),
             options_.devices.size());
}

// Returns the first of this worker's addresses that is of a family of which all workers have one. Every worker comes to
// the same family, which is the first common one of the first worker.
std::string JoinedWorkers::choose_host(const std::vector<std::vector<std::string>>& addresses) const {
  if (addresses_.empty()) return "";
  const auto of_family = [](const std::vector<std::string>& list, bool v6) {
    return std::find_if(list.begin(), list.end(), [&](const std::string& each) { return is_v6(each) == v6; });
  };
  for (const std::string& first : addresses.front()) {
    const bool v6 = is_v6(first);
    const auto has_one = [&](const auto& list) { return of_family(list, v6) != list.end(); };
    if (std::all_of(addresses.begin(), addresses.end(), has_one)) return *of_family(addresses_, v6);
  }
  std::string all;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    all += c10::str(i == 0 ? "" : ", ", membership_->tasks()[i].to_string(), " ", nlohmann::json(addresses[i]).dump());
  }
  cohort::fail<InvalidArgument>("[strategy] ", options_.strategy,
                                ": the workers have no common family of addresses, IPv4 or IPv6: ", all);
}

void JoinedWorkers::fail(const std::string& reason) const noexcept {
  try {
    if (!membership_->failure()) membership_->fail(c10::str(membership_->task().to_string(), ": ", reason));
  } catch (const std::exception& error) {
    log().warn("[strategy] the other workers could not be told that {}: {}", reason, error.what());
  }
}

}  // namespace cohort
