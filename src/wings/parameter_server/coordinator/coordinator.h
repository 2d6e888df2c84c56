// Coordinator: joins the parts of the chief: the queue, the dispatcher of the workers, the keeper of the servers, and
// checkpoints.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cohort/checkpoint.h"
#include "rpc/server.h"
#include "wings/parameter_server/client/client.h"
#include "wings/parameter_server/client/server_variables.h"
#include "wings/parameter_server/coordinator/closure_queue.h"
#include "wings/parameter_server/coordinator/dispatcher.h"
#include "wings/parameter_server/coordinator/keeper.h"

namespace cohort {

struct CoordinatorOptions {
  std::string address;  // the address to listen on
  RpcServerOptions rpc = {};
  ServerClientOptions servers = {};
  ClosureQueueOptions queue = {};
  DispatcherOptions dispatcher = {};
  KeeperOptions keeper = {};
  std::filesystem::path directory = {};
};

class Coordinator {
 public:
  Coordinator(std::shared_ptr<ServerVariables> variables, CoordinatorOptions options);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  // Ends the run on all tasks. If an exception is under way they are not told, and wait for another coordinator.
  ~Coordinator();

  ClosureQueue& queue() { return queue_; }
  int num_workers() const { return dispatcher_.num_workers(); }
  void pull();
  void push();
  void save(const std::map<std::string, std::string>& values);
  const std::optional<std::map<std::string, std::string>>& restored() const { return restored_; }

 private:
  std::shared_ptr<SavedVariables> restore();
  struct Collected {
    std::shared_ptr<SavedVariables> saved;
    parameter_server::View view;
  };
  Collected collect_all();
  void settle(const Collected& collected, int64_t next_closure);

  const int exceptions_ = std::uncaught_exceptions();
  const CoordinatorOptions options_;
  const std::shared_ptr<ServerVariables> variables_;
  std::optional<CheckpointManager> checkpoints_;
  std::optional<std::map<std::string, std::string>> restored_;
  ServerClient client_;
  ClosureQueue queue_;
  Dispatcher dispatcher_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<ServerKeeper> keeper_;
};

}  // namespace cohort
