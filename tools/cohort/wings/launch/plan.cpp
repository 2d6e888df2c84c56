#include "wings/launch/plan.h"

#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "cohort/cluster/cluster_spec.h"

namespace cohort::cli {

namespace {

// Returns the addresses of all workers in the order of their ranks, or nothing if they are not known.
std::vector<std::string> addresses(const LaunchOptions& options, const std::vector<int>& ports) {
  std::vector<std::string> list;
  if (options.nnodes == 1 && options.hosts.empty()) {
    for (const int port : ports) list.push_back(options.master_addr + ":" + std::to_string(port));
  }
  for (const std::string& host : options.hosts) {
    for (int i = 0; i < options.nproc; ++i) list.push_back(host + ":" + std::to_string(options.master_port + i));
  }
  return list;
}

}  // namespace

void check(const LaunchOptions& options) {
  const auto at_least = [](const char* flag, int value, int least) {
    if (value < least) fail<InvalidArgument>("[launch] ", flag, " is ", value, ", wanted ", least, " or more");
  };
  if (options.program.empty()) {
    fail<InvalidArgument>("[launch] there is no program to start; put it after --: cohort launch --nproc=2 -- ./train");
  }
  at_least("--ps", options.ps, 0);
  at_least("--workers", options.workers, 1);
  if (options.ps > 0 && (options.nproc > 1 || options.nnodes > 1 || !options.hosts.empty())) {
    fail<InvalidArgument>("[launch] --ps starts a chief, --ps servers and --workers workers on this machine: --nproc, ",
                          "--nnodes and --hosts have no meaning with it");
  }
  at_least("--nproc", options.nproc, 1);
  at_least("--nnodes", options.nnodes, 1);
  at_least("--node_rank", options.node_rank, 0);
  if (options.node_rank >= options.nnodes) {
    fail<InvalidArgument>("[launch] --node_rank is ", options.node_rank, " and --nnodes ", options.nnodes,
                          ", wanted a rank below the number of nodes");
  }
  if (!options.hosts.empty() && options.hosts.size() != static_cast<std::size_t>(options.nnodes)) {
    fail<InvalidArgument>("[launch] ", options.hosts.size(), " hosts came for ", options.nnodes, " nodes");
  }
  if (options.master_port < 0 || options.master_port > 65535) {
    fail<InvalidArgument>("[launch] --master_port is ", options.master_port, ", wanted 1 to 65535");
  }
  if (!options.hosts.empty() && options.master_port + options.nproc - 1 > 65535) {
    fail<InvalidArgument>("[launch] --master_port is ", options.master_port, ", but the last of ", options.nproc,
                          " workers of a node would listen on port ", options.master_port + options.nproc - 1);
  }
  if (options.nnodes > 1 && options.master_port == 0) {
    fail<InvalidArgument>("[launch] --nnodes is ", options.nnodes,
                          ": all nodes need the same --master_addr and --master_port, those of node 0");
  }
}

WorkerPlan plan_worker(const LaunchOptions& options, const WorkerPlace& place) {
  WorkerPlan worker{.rank = place.rank,
                    .name = "worker " + std::to_string(place.rank),
                    .command = options.program,
                    .environment = options.set};
  auto& variables = worker.environment;
  variables["RANK"] = std::to_string(place.rank);
  variables["WORLD_SIZE"] = std::to_string(place.world);
  variables["LOCAL_RANK"] = std::to_string(place.local);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(place.local_world);
  variables["GROUP_RANK"] = std::to_string(place.group);
  variables["MASTER_ADDR"] = place.master_addr;
  variables["MASTER_PORT"] = std::to_string(place.master_port);
  variables["COHORT_RESTART_COUNT"] = std::to_string(place.restarts);
  return worker;
}

std::vector<WorkerPlan> plan_workers(const LaunchOptions& options, const std::vector<int>& ports, int restarts) {
  const std::vector<std::string> all = addresses(options, ports);
  const int port = options.master_port > 0 ? options.master_port : ports.front();
  std::vector<WorkerPlan> workers;
  for (int local = 0; local < options.nproc; ++local) {
    const int rank = options.node_rank * options.nproc + local;
    WorkerPlan worker =
        plan_worker(options, {.rank = rank,
                              .world = options.nnodes * options.nproc,
                              .local = local,
                              .local_world = options.nproc,
                              .group = options.node_rank,
                              .master_addr = options.hosts.empty() ? options.master_addr : options.hosts.front(),
                              .master_port = port,
                              .restarts = restarts});
    if (!all.empty()) {
      worker.environment["TF_CONFIG"] =
          nlohmann::json{{"cluster", {{"worker", all}}}, {"task", {{"type", "worker"}, {"index", rank}}}}.dump();
    }
    workers.push_back(std::move(worker));
  }
  if (options.evaluator && options.node_rank == 0) {
    WorkerPlan evaluator{.rank = options.nnodes * options.nproc,
                         .name = "evaluator",
                         .command = options.program,
                         .environment = options.set};
    evaluator.environment["COHORT_RESTART_COUNT"] = std::to_string(restarts);
    evaluator.environment["TF_CONFIG"] = nlohmann::json{
        {"cluster", {{"worker", all.empty() ? std::vector{c10::str(options.master_addr, ":", port)} : all}}},
        {"task",
         {{"type", "evaluator"},
          {"index", 0}}}}.dump();
    workers.push_back(std::move(evaluator));
  }
  return workers;
}

std::vector<WorkerPlan> plan_parameter_servers(const LaunchOptions& options, const std::vector<int>& ports) {
  std::vector<TaskId> tasks = {{"chief", 0}};
  for (int i = 0; i < options.ps; ++i) tasks.push_back({"ps", i});
  for (int i = 0; i < options.workers; ++i) tasks.push_back({"worker", i});
  nlohmann::json cluster;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    cluster[tasks[i].type].push_back(options.master_addr + ":" + std::to_string(ports.at(i)));
  }
  if (options.evaluator) tasks.push_back({"evaluator", 0});
  std::vector<WorkerPlan> plans;
  for (const TaskId& task : tasks) {
    const bool only_one = task.type == "chief" || task.type == "evaluator";
    WorkerPlan plan{.rank = static_cast<int>(plans.size()),
                    .name = only_one ? task.type : task.to_string(),
                    .command = options.program,
                    .leads = task.type == "chief",
                    .environment = options.set};
    plan.environment["COHORT_RESTART_COUNT"] = "0";
    plan.environment["TF_CONFIG"] =
        nlohmann::json{{"cluster", cluster}, {"task", {{"type", task.type}, {"index", task.index}}}}.dump();
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace cohort::cli
