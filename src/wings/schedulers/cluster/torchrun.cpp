#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/fail.h"
#include "cluster/environment.h"
#include "cluster/free_port.h"
#include "cohort/cluster/scheduler_resolvers.h"
#include "rpc/address.h"

namespace cohort {

namespace {

constexpr const char* kNotTorchrun = "not started by torchrun?";

struct TorchrunLaunch {
  int rank = 0;
  int size = 1;
  Address master;
};

// Kubeflow's trainer tells each node what torchrun would read there. Without a launcher the process is its node's only
// worker.
TorchrunLaunch read_node(const Environment& variables) {
  const std::string processes = variable(variables, "PET_NPROC_PER_NODE").value_or("1");
  if (processes != "1") {
    fail<InvalidArgument>("[cluster] torchrun: PET_NPROC_PER_NODE is ", processes, ", wanted 1 for a program without ",
                          "a launcher; start it by cohort launch or torchrun");
  }
  constexpr const char* kNotThere = "not a node of Kubeflow's trainer?";
  TorchrunLaunch launch;
  launch.rank = require_number(variables, "PET_NODE_RANK", "torchrun", kNotThere);
  launch.size = require_number(variables, "PET_NNODES", "torchrun", kNotThere, 1);
  launch.master.host = require_variable(variables, "PET_MASTER_ADDR", "torchrun", kNotThere);
  launch.master.port = require_number(variables, "PET_MASTER_PORT", "torchrun", kNotThere, 1);
  if (launch.rank < launch.size) return launch;
  fail<InvalidArgument>("[cluster] torchrun: PET_NODE_RANK is ", launch.rank, " and PET_NNODES is ", launch.size,
                        ", wanted a rank below the number");
}

TorchrunLaunch read_launch(const Environment& variables) {
  if (!variable(variables, "RANK") && variable(variables, "PET_NNODES")) return read_node(variables);
  TorchrunLaunch launch;
  launch.rank = require_number(variables, "RANK", "torchrun", kNotTorchrun);
  launch.size = require_number(variables, "WORLD_SIZE", "torchrun", kNotTorchrun, 1);
  launch.master.host = require_variable(variables, "MASTER_ADDR", "torchrun", kNotTorchrun);
  launch.master.port = require_number(variables, "MASTER_PORT", "torchrun", kNotTorchrun, 1);
  if (launch.rank < launch.size) return launch;
  fail<InvalidArgument>("[cluster] torchrun: RANK is ", launch.rank, " and WORLD_SIZE is ", launch.size,
                        ", wanted a rank below the size");
}

// Returns the leader's address. torchrun itself listens on MASTER_PORT with a store, so worker 0 picks another port and
// leaves it in the store.
Address ask_agent(const TorchrunOptions& options, const TorchrunLaunch& launch) {
  const std::string key = "cohort/leader/" + variable(options.variables, "TORCHELASTIC_RESTART_COUNT").value_or("0");
  try {
    c10d::TCPStoreOptions store_options;
    store_options.port = static_cast<uint16_t>(launch.master.port);
    store_options.timeout = options.timeout;
    store_options.waitWorkers = false;
    c10d::TCPStore store(launch.master.host, store_options);
    if (launch.rank == 0 && !store.check({key})) {
      const std::string text = std::to_string(free_port(launch.master.host));
      store.set(key, {text.begin(), text.end()});
    }
    const std::vector<uint8_t> port = store.get(key);
    return {launch.master.host, parse_int(std::string(port.begin(), port.end())).value_or(0)};
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail<Unavailable>("[cluster] torchrun: worker ", launch.rank,
                      " found no address of worker 0 in the agent's store at ", launch.master.to_string(), ": ",
                      error.what());
  }
}

}  // namespace

ClusterSpec TorchrunResolver::cluster_spec() const {
  const TorchrunLaunch launch = read_launch(options_.variables);
  const bool agent_listens = variable(options_.variables, "TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  const Address leader = agent_listens ? ask_agent(options_, launch) : launch.master;
  std::vector<std::string> addresses(static_cast<std::size_t>(launch.size));
  addresses[0] = leader.to_string();
  return ClusterSpec(std::map<std::string, std::vector<std::string>>{{"worker", addresses}});
}

std::optional<TaskId> TorchrunResolver::task() const {
  return TaskId{"worker", read_launch(options_.variables).rank};
}

}  // namespace cohort
