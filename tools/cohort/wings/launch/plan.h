// The processes that a launch starts, and the variables that tell each of the cluster. Nothing is started here.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace cohort::cli {

struct LaunchOptions {
  std::vector<std::string> program;  // the program and its arguments
  int nproc = 1;                     // workers a node
  int nnodes = 1;
  int node_rank = 0;
  int ps = 0;  // parameter servers; above 0 there are these, `workers` and a chief instead
  int workers = 1;
  bool evaluator = false;  // node 0 starts an evaluator beside its workers
  std::string master_addr;
  int master_port = 0;                     // 0: a free one, which works for one node alone
  std::vector<std::string> hosts;          // hosts of all nodes, in the order of their ranks; empty: not known
  std::map<std::string, std::string> set;  // further variables
};

// One process to start.
struct WorkerPlan {
  int rank = 0;
  std::string name;                  // "worker 3"
  std::vector<std::string> command;  // the command to run
  bool leads = false;                // its successful end is the end of the run
  bool hold_stdin = false;           // it gets a standard input, which ends with the launcher
  std::string input = {};            // what stands there first, no more than a pipe holds
  std::map<std::string, std::string> environment;
};

// Throws InvalidArgument if numbers do not fit each other.
void check(const LaunchOptions& options);

// The place of a worker among all workers.
struct WorkerPlace {
  int rank = 0;
  int world = 1;
  int local = 0;  // the rank among the workers of its node
  int local_world = 1;
  int group = 0;  // the index of its node
  std::string master_addr;
  int master_port = 0;
  int restarts = 0;
};

// Returns one worker, with torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK,
// MASTER_ADDR, MASTER_PORT) and COHORT_RESTART_COUNT.
WorkerPlan plan_worker(const LaunchOptions& options, const WorkerPlace& place);

// Returns the workers of this node, and the evaluator, which gets TF_CONFIG alone. Workers get TF_CONFIG too if the
// addresses of all are known: on one node, or with `hosts`. `ports` has one port for each worker of the node; with
// hosts, worker i of every host listens on master_port + i.
std::vector<WorkerPlan> plan_workers(const LaunchOptions& options, const std::vector<int>& ports, int restarts);

// Returns the chief, the parameter servers, the workers and the evaluator, each with TF_CONFIG. `ports` has one for
// each task but the evaluator.
std::vector<WorkerPlan> plan_parameter_servers(const LaunchOptions& options, const std::vector<int>& ports);

}  // namespace cohort::cli
