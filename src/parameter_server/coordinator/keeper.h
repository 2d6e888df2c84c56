// ServerKeeper: the coordinator's care for the parameter servers. It gives them their shards, watches them, and when
// one is lost makes its backup the primary, or fills it again when it comes back. Each change is a new view.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cluster/liveness.h"
#include "messages.pb.h"
#include "parameter_server/catalog.h"
#include "parameter_server/client/client.h"
#include "parameter_server/client/saved_variables.h"

namespace cohort {

struct KeeperOptions {
  uint64_t run = 1;  // servers that have this run's shards keep them
  int replicas = 1;  // 2: every shard is on two servers
  // For all servers to be there at first, and for a lost one to come back.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
  std::chrono::milliseconds return_timeout = std::chrono::minutes(10);
  std::chrono::milliseconds report_interval = std::chrono::seconds(5);
  // A server that is silent for so long is lost.
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(5);
  // Of a call that moves shards.
  std::chrono::milliseconds call_timeout = std::chrono::minutes(1);
};

// What the keeper tells; from its thread.
struct KeeperEvents {
  std::function<void(const parameter_server::View&)> view = [](const auto&) {};
  // Shards were given what a checkpoint (or the beginning) had: the work since is to be done again.
  std::function<void()> restored = [] {};
  // All work before this is done: servers need not remember its updates, however long the run is.
  std::function<int64_t()> done_below = [] { return int64_t{0}; };
  // A server did not come back.
  std::function<void(const std::exception_ptr&)> lost = [](const auto&) {};
};

class ServerKeeper {
 public:
  ServerKeeper(std::shared_ptr<const Catalog> catalog, ServerClient& client, const KeeperOptions& options,
               KeeperEvents events);
  ServerKeeper(const ServerKeeper&) = delete;
  ServerKeeper& operator=(const ServerKeeper&) = delete;
  ~ServerKeeper();

  // Where the values come from of shards that no server has any more, and the first closure that is not in them.
  // The first time also of all shards, unless the servers are this run's already.
  void set_source(std::shared_ptr<const SavedVariables> saved, int64_t next_closure);

  // Returns when all servers are there and serve. DeadlineExceeded names the missing; FailedPrecondition: one of them
  // runs another program. Whether the servers have gone on from before (this coordinator was started again): with the
  // rates that they had, else with `rates`, by variable.
  bool start(const std::map<std::size_t, double>& rates = {});

  // After start(), and only where nothing is being trained. Each is tried again until it could be done;
  // DeadlineExceeded after options.return_timeout.

  // Gives every server these values in place of its own; the source from now on.
  void replace(std::shared_ptr<const SavedVariables> saved, int64_t next_closure);
  // By variable.
  void set_learning_rates(const std::map<std::size_t, double>& rates);

  // Tells the servers that the run is over.
  void stop_servers();

 private:
  struct Server {
    Liveness alive;
    uint64_t trusted = 0;  // the incarnation that has what the view says
    uint64_t view = 0;

    bool up() const { return alive.entered() && !alive.suspected(); }
    bool holds() const { return up() && alive.is(trusted); }
    void trust() { trusted = alive.incarnation(); }
  };
  using Lock = std::unique_lock<std::mutex>;
  using Hello = parameter_server::HelloReply;

  void ask(const char* what, std::function<void()> wish);
  bool grant();
  void note_rates(const std::map<std::size_t, double>& rates);
  Hello hello(int server, bool first, std::chrono::milliseconds limit);
  std::vector<Hello> meet_all();
  bool adopt(const std::vector<Hello>& hellos);
  void place_all();
  void watch(int server, const std::stop_token& stop);
  void tell_done(int server, int64_t& told);
  void note(int server, const Hello& reply);
  void note_silence(int server, std::chrono::milliseconds patience);
  void keep(const std::stop_token& stop);
  bool repair();
  bool drop_lost();
  bool refill();
  bool away_for_good(int server);
  bool add_backups();
  bool go_home();
  void join(int home, int server);
  int candidate(int home);
  void publish();
  bool holds(int server);
  bool is_up(int server);
  void place(int home, int server);
  Server& of(int server) { return servers_[static_cast<std::size_t>(server)]; }
  std::string name(int server) const;

  const std::shared_ptr<const Catalog> catalog_;
  ServerClient& client_;
  const KeeperOptions options_;
  const KeeperEvents events_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Server> servers_;
  std::shared_ptr<const SavedVariables> source_;
  int64_t source_closure_ = 0;
  bool noted_ = false;           // something new was heard
  bool told_ = false;            // of a server that does not come back
  std::function<void()> wish_;   // of another thread: for the keeper's to do
  uint64_t asked_ = 0;           // wishes so far
  uint64_t granted_ = 0;         // the last one that was done
  parameter_server::View view_;  // of the keeper's thread
  std::vector<std::jthread> threads_;
};

}  // namespace cohort
