// ClusterCoordinator: hands out work to the workers of a ParameterServerStrategy.
//
// A scheduled step runs at least once, on any worker; when a worker is lost, others do what it had. Its updates count
// once. When a parameter server is lost its backup takes over (replicas = 2), or the launcher starts it again and it
// gets what the last checkpoint had, and the work since is done again; neither is seen here.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cluster/parameter_server_strategy.h"
#include "cohort/cluster/remote_value.h"

namespace cohort {

// This is a handle: made again for the same strategy, it is the same coordinator. One thread at a time.
//
// schedule(), join() and done() throw the first error that an earlier step met, when nothing is running any more: the
// steps that were queued are cancelled then (their values are Cancelled), and work can be scheduled again. Unavailable:
// a server was lost and did not come back. DeadlineExceeded: nothing has happened for ParameterServerOptions::timeout.
class ClusterCoordinator {
 public:
  // To be made on the chief, after serve(). Returns when all servers are there and have their values: of the latest
  // checkpoint in the strategy's directory, else this process's. FailedPrecondition: on another task; a task runs
  // another program.
  explicit ClusterCoordinator(const ParameterServerStrategy& strategy);

  // Queues a registered step; waits only while 262,144 are queued. NotFound: there is no such step.
  RemoteValue schedule(const std::string& step, std::vector<torch::Tensor> arguments = {}) const;
  // Queues the same step for several lists of arguments: in synchronous training they are the shares of one step of the
  // optimizer. A share weighs as many examples as its first argument has rows.
  std::vector<RemoteValue> schedule_shares(const std::string& step,
                                           std::vector<std::vector<torch::Tensor>> shares) const;
  // Returns when everything that was scheduled is done.
  void join() const;
  // Returns whether all that was scheduled is done.
  bool done() const;
  // Returns the value's tensors; the same as RemoteValue::fetch().
  std::vector<torch::Tensor> fetch(const RemoteValue& value) const { return value.fetch(); }

  // Returns the number of workers that are there now.
  int num_workers() const;

  // Waits for all work, then reads the variables into this process: modules, variables, and what a checkpoint needs. A
  // server that is lost later, and had no replica, gets these values again.
  void pull() const;
  // Waits for all work, then gives the servers what this process has: after weights or optimizers were loaded here.
  void push() const;
  // Does what pull() does, and writes a checkpoint into the strategy's directory with these values, which a coordinator
  // that is started again finds in restored(). FailedPrecondition: the strategy has no directory.
  void save(const std::map<std::string, std::string>& values = {}) const;
  // Returns the values of the checkpoint that this coordinator has begun with. Work that was done since, and is
  // scheduled again in the same order, is not applied again.
  const std::optional<std::map<std::string, std::string>>& restored() const;

 private:
  std::shared_ptr<ParameterServerState> state_;
};

}  // namespace cohort
