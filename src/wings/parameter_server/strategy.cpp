#include "cohort/cluster/parameter_server_strategy.h"

#include <algorithm>
#include <thread>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "cluster/own_host.h"
#include "cohort/cluster/cluster_coordinator.h"
#include "rpc/address.h"
#include "rpc/security.h"
#include "strategy/strategies/preset.h"
#include "wings/parameter_server/server/server.h"
#include "wings/parameter_server/state.h"
#include "wings/parameter_server/worker/worker.h"

namespace cohort {

namespace {

constexpr const char* kStrategyName = "parameter_server";
// The period in which a server checks whether it is still needed.
constexpr std::chrono::milliseconds kLook(20);

TaskId task_in(const ClusterResolver& resolver, const ClusterSpec& cluster) {
  const std::optional<TaskId> task = resolver.task();
  if (cluster.empty() || !task) {
    fail<InvalidArgument>("[strategy] ", kStrategyName, ": needs a cluster (TF_CONFIG, or another resolver) with a ",
                          "chief, workers and ps, and this process's task in it");
  }
  for (const char* job : {"chief", "worker", "ps"}) {
    if (cluster.num_tasks(job) > 0) continue;
    fail<InvalidArgument>("[strategy] ", kStrategyName, ": the cluster ", cluster.to_json(), " has no ", job);
  }
  require_no_gap(cluster, "ps");
  // A worker that the cluster does not name may join.
  if (task->type != "worker") require_task(cluster, *task);
  return *task;
}

ParameterServerOptions checked(ParameterServerOptions options) {
  const JobSecurity security = job_security(options.security, options.allow_insecure);
  options.security = security.security;
  options.allow_insecure = security.allow_insecure;
  if (options.compression.empty() || options.compression == "bfloat16" || options.compression == "float16") {
    return options;
  }
  fail<InvalidArgument>("[strategy] ", kStrategyName, ": compression is \"", options.compression,
                        "\", wanted \"\", \"bfloat16\" or \"float16\"");
}

StrategyPlan plan_of(const std::shared_ptr<ParameterServerState>& state) {
  const ParameterServerOptions& options = state->options();
  StrategyPlan plan = build_plan({.name = kStrategyName, .devices = options.devices, .exchange = options.exchange});
  const LogicalDevice here = find_logical_device("/CPU:0");
  if (state->task().type == "evaluator") {
    plan.placement = make_central(plan.devices, here);
  } else {
    plan.placement = std::make_shared<ServersPlacement>(plan.devices, here, state);
  }
  const std::string& ops = plan.exchange.cross_device_ops;
  if (ops != "auto" && ops != "reduction_to_one_device") {
    fail<InvalidArgument>("[strategy] ", kStrategyName, ": cross_device_ops is \"", ops,
                          "\", but gradients are added up on the CPU and go to the servers; wanted \"auto\"");
  }
  plan.exchange.cross_device_ops = "reduction_to_one_device";
  plan.sharing_cores = state->sharing_cores();
  return plan;
}

ClusterResolverPtr resolver_in(const ParameterServerOptions& options) {
  return options.resolver ? options.resolver : resolve_cluster();
}

}  // namespace

// -- The state.

ParameterServerState::ParameterServerState(ClusterResolverPtr resolver, const ParameterServerOptions& options)
    : options_(checked(options)),
      resolver_(std::move(resolver)),
      cluster_(resolver_->cluster_spec()),
      task_(task_in(*resolver_, cluster_)),
      variables_(std::make_shared<ServerVariables>(
          ServerVariablesOptions{.num_servers = cluster_.num_tasks("ps"),
                                 .partitioner = options_.variable_partitioner,
                                 .keeps_values = task_.type != "ps",
                                 .keeps_slots = task_.type == "chief",
                                 .always_refresh = options_.consistency.kind != Consistency::Kind::kAsynchronous})) {}

const std::string& ParameterServerState::address_of(const TaskId& task) const {
  return cluster_.address(task);
}

std::vector<std::string> ParameterServerState::server_addresses() const {
  std::vector<std::string> addresses;
  for (int i = 0; i < cluster_.num_tasks("ps"); ++i) addresses.push_back(address_of({"ps", i}));
  return addresses;
}

rpc::ElementType ParameterServerState::element_type() const {
  if (options_.compression == "bfloat16") return rpc::BFLOAT16;
  if (options_.compression == "float16") return rpc::FLOAT16;
  return rpc::NONE;
}

int ParameterServerState::sharing_cores() const {
  if (task_.type != "worker" || !cluster_.has(task_)) return 1;
  const auto host_of = [&](const std::string& address) {
    const std::optional<Address> parsed = parse_address(address);
    return parsed ? parsed->host : address;
  };
  const std::string own = host_of(address_of(task_));
  int count = 0;
  for (const auto& [index, address] : cluster_.jobs().at("worker")) count += host_of(address) == own ? 1 : 0;
  return std::max(1, count);
}

void ParameterServerState::register_step(const std::string& name, ParameterServerStrategy::StepFunction step) {
  if (served_) {
    fail<FailedPrecondition>("[strategy] ", kStrategyName, ": the step \"", name, "\" was registered after serve()");
  }
  if (!step) fail<InvalidArgument>("[strategy] ", kStrategyName, ": the step \"", name, "\" is an empty function");
  if (!steps_.emplace(name, std::move(step)).second) {
    fail<InvalidArgument>("[strategy] ", kStrategyName, ": there are two steps of the name \"", name, "\"");
  }
}

std::vector<std::string> ParameterServerState::step_names() const {
  std::vector<std::string> names;
  for (const auto& [name, step] : steps_) names.push_back(name);
  return names;
}

bool ParameterServerState::serve() {
  served_ = true;
  variables_->freeze();
  if (task_.type == "ps") serve_as_server();
  if (task_.type == "worker") serve_as_worker();
  for (auto& [name, step] : steps_)
    step = nullptr;  // only workers run them, so the objects that they refer to are released
  return task_.type == "ps" || task_.type == "worker";
}

// Waits until this task's host can be resolved.
RpcServerOptions ParameterServerState::serving_options(const std::string& quick) const {
  await_own_name(cluster_, task_, {.limit = options_.start_timeout});
  return {.security = options_.security,
          .quick = {quick},
          .further_hosts = hosts_beside_loopback(cluster_, task_),
          .allow_insecure = options_.allow_insecure};
}

void ParameterServerState::serve_as_server() {
  variables_->release();
  ParameterServer logic(variables_->freeze(), {.index = task_.index,
                                               .addresses = server_addresses(),
                                               .security = options_.security,
                                               .timeout = options_.heartbeat_timeout + std::chrono::seconds(5)});
  const RpcServer rpc(
      address_of(task_), serving_options("/ps/Hello"),
      [&](const std::string& method, const std::shared_ptr<RpcCall>& call) { logic.handle(method, call); });
  log().info("[parameter server] {} serves on {}", task_.to_string(), address_of(task_));
  while (!logic.stopped()) {
    std::this_thread::sleep_for(kLook);
    if (std::chrono::steady_clock::now() - logic.last_hello() < options_.coordinator_timeout) continue;
    fail<Unavailable>("[parameter server] ", task_.to_string(), " has not heard of the coordinator for ",
                      to_text(options_.coordinator_timeout));
  }
}

void ParameterServerState::serve_as_worker() {
  ServerClient client(variables_->freeze(), {.addresses = server_addresses(),
                                             .security = options_.security,
                                             .call_timeout = std::max<std::chrono::milliseconds>(
                                                 2 * options_.heartbeat_timeout, std::chrono::seconds(10)),
                                             .timeout = options_.server_timeout + options_.timeout,
                                             .element_type = element_type()});
  variables_->connect(client);
  WorkerLoop(client,
             [&](const Closure& closure) {
               const auto step = steps_.find(closure.step);
               if (step == steps_.end()) fail<NotFound>("[parameter server] there is no step \"", closure.step, "\"");
               const std::shared_ptr<void> at_end(nullptr, [&](void*) { variables_->end_step(); });
               variables_->begin_step(closure);
               return step->second(closure.arguments);
             },
             {.index = task_.index,
              .coordinator = address_of({"chief", 0}),
              .security = options_.security,
              .catalog = variables_->freeze()->description(),
              .steps = step_names(),
              .coordinator_timeout = options_.coordinator_timeout})
      .run();
}

Coordinator& ParameterServerState::coordinator() {
  if (coordinator_) return *coordinator_;
  if (task_.type != "chief") {
    fail<FailedPrecondition>("[coordinator] this process is ", task_.to_string(), ", the coordinator is the chief");
  }
  if (!served_) fail<FailedPrecondition>("[coordinator] the chief calls serve() first, as all tasks do");
  coordinator_ = std::make_unique<Coordinator>(
      variables_, CoordinatorOptions{.address = address_of(task_),
                                     .rpc = serving_options("/chief/Beat"),
                                     .servers = {.addresses = server_addresses(),
                                                 .security = options_.security,
                                                 .timeout = options_.server_timeout + options_.timeout,
                                                 .element_type = element_type()},
                                     .queue = {.consistency = options_.consistency, .timeout = options_.timeout},
                                     .dispatcher = {.catalog = variables_->freeze()->description(),
                                                    .steps = step_names(),
                                                    .workers = cluster_.num_tasks("worker"),
                                                    .heartbeat_timeout = options_.heartbeat_timeout},
                                     .keeper = {.replicas = options_.replicas,
                                                .start_timeout = options_.start_timeout,
                                                .return_timeout = options_.server_timeout,
                                                .heartbeat_timeout = options_.heartbeat_timeout},
                                     .directory = options_.directory});
  return *coordinator_;
}

// -- The handles.

ParameterServerStrategy::ParameterServerStrategy(const ParameterServerOptions& options)
    : ParameterServerStrategy(std::make_shared<ParameterServerState>(resolver_in(options), options)) {}

ParameterServerStrategy::ParameterServerStrategy(std::shared_ptr<ParameterServerState> state)
    : Strategy(std::make_shared<StrategyCore>(plan_of(state))), state_(std::move(state)) {}

std::optional<ParameterServerStrategy> ParameterServerStrategy::of(const Strategy& strategy) {
  const auto* placement = dynamic_cast<const ServersPlacement*>(&Access::core(strategy)->placement());
  if (placement == nullptr) return std::nullopt;
  return ParameterServerStrategy(strategy, std::dynamic_pointer_cast<ParameterServerState>(placement->cluster()));
}

const ClusterResolverPtr& ParameterServerStrategy::cluster_resolver() const {
  return state_->resolver();
}
const TaskId& ParameterServerStrategy::task() const {
  return state_->task();
}
bool ParameterServerStrategy::is_coordinator() const {
  return state_->task().type == "chief";
}
void ParameterServerStrategy::register_step(const std::string& name, StepFunction step) const {
  state_->register_step(name, std::move(step));
}
bool ParameterServerStrategy::serve() const {
  return state_->serve();
}

ClusterCoordinator::ClusterCoordinator(const ParameterServerStrategy& strategy) : state_(Access::state(strategy)) {
  (void)state_->coordinator();
}

RemoteValue ClusterCoordinator::schedule(const std::string& step, std::vector<torch::Tensor> arguments) const {
  std::vector<std::vector<torch::Tensor>> one;
  one.push_back(std::move(arguments));
  return schedule_shares(step, std::move(one)).front();
}

std::vector<RemoteValue> ClusterCoordinator::schedule_shares(const std::string& step,
                                                             std::vector<std::vector<torch::Tensor>> shares) const {
  if (!state_->has_step(step)) {
    fail<NotFound>("[coordinator] schedule: there is no step \"", step, "\" among ", state_->step_names());
  }
  double total = 0.0;
  std::vector<double> weights;
  for (std::vector<torch::Tensor>& arguments : shares) {
    for (torch::Tensor& argument : arguments) argument = argument.detach().cpu().contiguous();
    const bool counts = !arguments.empty() && arguments[0].dim() > 0;
    weights.push_back(counts ? static_cast<double>(arguments[0].size(0)) : 1.0);
    total += weights.back();
  }
  for (double& weight : weights) weight = total > 0.0 ? weight / total : 1.0;
  std::vector<RemoteValue> values;
  for (auto& value : state_->coordinator().queue().schedule(step, std::move(shares), weights)) {
    values.emplace_back(std::move(value));
  }
  return values;
}

void ClusterCoordinator::join() const {
  state_->coordinator().queue().join();
}
bool ClusterCoordinator::done() const {
  return state_->coordinator().queue().done();
}
int ClusterCoordinator::num_workers() const {
  return state_->coordinator().num_workers();
}
void ClusterCoordinator::pull() const {
  state_->coordinator().pull();
}
void ClusterCoordinator::push() const {
  state_->coordinator().push();
}
void ClusterCoordinator::save(const std::map<std::string, std::string>& values) const {
  state_->coordinator().save(values);
}
const std::optional<std::map<std::string, std::string>>& ClusterCoordinator::restored() const {
  return state_->coordinator().restored();
}

}  // namespace cohort
