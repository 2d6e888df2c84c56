// Which processes a launch starts, and what each is told of the cluster. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace cohort::cli {

struct LaunchOptions {
  std::vector<std::string> program;  // with its arguments
  int nproc = 1;                     // workers a node
  int nnodes = 1;
  int node_rank = 0;
  int ps = 0;  // parameter servers; above 0 there are these, `workers` and a chief instead
  int workers = 1;
  bool evaluator = false;  // whether node 0 starts one beside its workers
  std::string master_addr;
  int master_port = 0;                     // 0: one that is free, only for one node
  std::vector<std::string> hosts;          // of all nodes, in the order of their ranks; empty: not known
  std::map<std::string, std::string> set;  // further variables
};

// One process to start.
struct WorkerPlan {
  int rank = 0;
  std::string name;                  // "worker 3"
  std::vector<std::string> command;  // what to run
  bool leads = false;                // when it has ended well the run is over for all
  bool hold_stdin = false;           // give it a standard input that ends with the launcher; otherwise it has none
  std::map<std::string, std::string> environment;
};

// InvalidArgument: numbers that do not fit each other.
void check(const LaunchOptions& options);

// Where a worker stands among all.
struct WorkerPlace {
  int rank = 0;
  int world = 1;
  int local = 0;  // among its node's
  int local_world = 1;
  int group = 0;  // its node
  std::string master_addr;
  int master_port = 0;
  int restarts = 0;
};

// One worker, with torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR,
// MASTER_PORT) and COHORT_RESTART_COUNT.
WorkerPlan plan_worker(const LaunchOptions& options, const WorkerPlace& place);

// This node's workers, and the evaluator, which gets TF_CONFIG alone. Every worker gets TF_CONFIG too where the
// addresses of all workers are known: on one node, or with `hosts`. `ports` are one for each of the node's workers;
// where hosts are given, worker i of every host listens on master_port + i.
std::vector<WorkerPlan> plan_workers(const LaunchOptions& options, const std::vector<int>& ports, int restarts);

// Chief, parameter servers, workers, and the evaluator, each with TF_CONFIG. A port for each of the first three.
std::vector<WorkerPlan> plan_parameter_servers(const LaunchOptions& options, const std::vector<int>& ports);

}  // namespace cohort::cli
