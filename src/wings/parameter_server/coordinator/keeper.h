// ServerKeeper: takes care of the parameter servers for the coordinator. It gives them their shards and watches them.
// When a server is lost it makes the backup the primary, or fills the server again when it comes back. Each change is a
// view. What has to be done is decided by a Roster; the keeper does it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "messages.pb.h"
#include "wings/parameter_server/catalog.h"
#include "wings/parameter_server/client/client.h"
#include "wings/parameter_server/client/saved_variables.h"
#include "wings/parameter_server/coordinator/epochs.h"
#include "wings/parameter_server/coordinator/home_transfers.h"
#include "wings/parameter_server/coordinator/keeper_options.h"
#include "wings/parameter_server/coordinator/roster.h"
#include "wings/parameter_server/coordinator/server_watch.h"

namespace cohort {

class ServerKeeper {
 public:
  ServerKeeper(std::shared_ptr<const Catalog> catalog, ServerClient& client, const KeeperOptions& options,
               KeeperEvents events);
  ServerKeeper(const ServerKeeper&) = delete;
  ServerKeeper& operator=(const ServerKeeper&) = delete;
  ~ServerKeeper();

  // Sets the values of shards that no server has any more, and the first closure that is not contained in them. The
  // first source fills all shards.
  void set_source(std::shared_ptr<const SavedVariables> saved, int64_t next_closure);

  // Waits until every shard is served, with these learning rates, by variable. Whatever the servers have from an
  // earlier coordinator is replaced by the source. The first coordinator in a directory needs all servers; a later one
  // needs one server of each home. DeadlineExceeded names the missing servers. FailedPrecondition: a server runs
  // another program.
  void start(const std::map<std::size_t, double>& rates = {});

  // The next functions are for the time after start() in which nothing is being trained. Each one is repeated until it
  // succeeds, and throws DeadlineExceeded after options.return_timeout.

  // Gives every server these values, which are the source from now on.
  void replace(std::shared_ptr<const SavedVariables> saved, int64_t next_closure);
  // Sets the learning rates, by variable.
  void set_learning_rates(const std::map<std::size_t, double>& rates);

  // Tells the servers that in this view all work before a closure is done.
  void forget(const parameter_server::View& view, int64_t closure);
  // Tells the servers that the run is over.
  void stop_servers();

 private:
  using Lock = std::unique_lock<std::mutex>;

  void ask(const char* what, std::function<void()> wish);
  bool grant();
  void begin(const std::map<std::size_t, double>& rates);
  void fill_all();
  void keep(const std::stop_token& stop);
  RosterAction::Kind step();
  void publish();
  void give_view(const parameter_server::View& view);
  void publish_changes();
  void fill(const RosterAction& action);
  void copy(const RosterAction& action);
  void look_for_missing();

  const std::shared_ptr<const Catalog> catalog_;
  ServerClient& client_;
  const KeeperOptions options_;
  const KeeperEvents events_;
  const Epochs epochs_;
  KnownServers known_;
  HomeTransfers transfers_;
  // known_.mutex guards the next ones.
  bool started_ = false;  // all homes were served
  bool reported_missing_server_ = false;
  std::function<void()> wish_;  // a request of another thread to the keeper's thread
  uint64_t asked_ = 0;          // number of requests so far
  uint64_t granted_ = 0;        // number of the last request that was done
  ServerWatch watch_;           // the last members, because their threads use the others
  std::jthread thread_;
};

}  // namespace cohort
