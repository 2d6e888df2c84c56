#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/fail.h"
#include "cluster/environment.h"
#include "cluster/free_port.h"
#include "cohort/cluster/scheduler_resolvers.h"
#include "rpc/address.h"

namespace cohort {

namespace {

// The variables that tell a process its rank.
struct RankVariables {
  const char* rank;
  const char* size;
  const char* host;
  const char* port;
  const char* hint;  // in the error when one is not set
};
constexpr RankVariables kOfWorker = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "not started by torchrun?"};
// Kubeflow's trainer tells each node what torchrun would read there.
constexpr RankVariables kOfNode = {"PET_NODE_RANK", "PET_NNODES", "PET_MASTER_ADDR", "PET_MASTER_PORT",
                                   "not a node of Kubeflow's trainer?"};

struct TorchrunLaunch {
  int rank = 0;
  int size = 1;
  Address master;
};

// Without a launcher the process is its node's only worker.
void require_one_worker(const Environment& variables) {
  const std::string processes = variable(variables, "PET_NPROC_PER_NODE").value_or("1");
  if (processes == "1") return;
  fail<InvalidArgument>("[cluster] torchrun: PET_NPROC_PER_NODE is ", processes, ", wanted 1 for a program without a ",
                        "launcher; start it by cohort launch or torchrun");
}

TorchrunLaunch read_launch(const Environment& variables) {
  const bool of_node = !variable(variables, kOfWorker.rank) && variable(variables, kOfNode.size);
  if (of_node) require_one_worker(variables);
  const RankVariables& names = of_node ? kOfNode : kOfWorker;
  TorchrunLaunch launch;
  launch.rank = require_number(variables, names.rank, "torchrun", names.hint);
  launch.size = require_number(variables, names.size, "torchrun", names.hint, 1);
  launch.master.host = require_variable(variables, names.host, "torchrun", names.hint);
  launch.master.port = require_number(variables, names.port, "torchrun", names.hint, 1);
  if (launch.rank < launch.size) return launch;
  fail<InvalidArgument>("[cluster] torchrun: ", names.rank, " is ", launch.rank, " and ", names.size, " is ",
                        launch.size, ", wanted a rank below the size");
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
