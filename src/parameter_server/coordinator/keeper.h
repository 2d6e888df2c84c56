// ServerKeeper: takes care of the parameter servers for the coordinator. It gives them their shards and watches them.
// When a server is lost it makes the backup the primary, or fills the server again when it comes back. Each change is a
// view.
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
  uint64_t run = 1;  // the number of the run; servers that have its shards keep them
  int replicas = 1;  // 2: every shard is on two servers
  // The longest wait for all servers at first, and for a lost one to come back.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
  std::chrono::milliseconds return_timeout = std::chrono::minutes(10);
  std::chrono::milliseconds report_interval = std::chrono::seconds(5);
  // The time that a server may be silent before it is lost.
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(5);
  // The longest time of a call that moves shards.
  std::chrono::milliseconds call_timeout = std::chrono::minutes(1);
};

// The events that the keeper reports, on its own thread.
struct KeeperEvents {
  std::function<void(const parameter_server::View&)> view = [](const auto&) {};
  // Shards were filled from a checkpoint, or with initial values, so that the work since then has to be repeated.
  std::function<void()> restored = [] {};
  // Returns the id before which all work is done. Servers forget the updates of that work.
  std::function<int64_t()> done_below = [] { return int64_t{0}; };
  // A server did not come back in time.
  std::function<void(const std::exception_ptr&)> lost = [](const auto&) {};
};

class ServerKeeper {
 public:
  ServerKeeper(std::shared_ptr<const Catalog> catalog, ServerClient& client, const KeeperOptions& options,
               KeeperEvents events);
  ServerKeeper(const ServerKeeper&) = delete;
  ServerKeeper& operator=(const ServerKeeper&) = delete;
  ~ServerKeeper();

  // Sets the values of shards that no server has any more, and the first closure that is not contained in them. The
  // first source fills all shards, unless the servers have this run's already.
  void set_source(std::shared_ptr<const SavedVariables> saved, int64_t next_closure);

  // Waits until all servers serve. Returns whether they go on from an earlier coordinator of this run, with the
  // learning rates that they had; otherwise they get `rates`, by variable. DeadlineExceeded names the missing servers.
  // FailedPrecondition: a server runs another program.
  bool start(const std::map<std::size_t, double>& rates = {});

  // The next functions are for the time after start() in which nothing is being trained. Each one is repeated until it
  // succeeds, and throws DeadlineExceeded after options.return_timeout.

  // Gives every server these values, which are the source from now on.
  void replace(std::shared_ptr<const SavedVariables> saved, int64_t next_closure);
  // Sets the learning rates, by variable.
  void set_learning_rates(const std::map<std::size_t, double>& rates);

  // Tells the servers that the run is over.
  void stop_servers();

 private:
  struct Server {
    Liveness alive;
    uint64_t trusted = 0;  // the incarnation that has the shards of the view
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
  bool noted_ = false;  // there is news for the keeper's thread
  bool reported_missing_server_ = false;
  std::function<void()> wish_;   // a request of another thread to the keeper's thread
  uint64_t asked_ = 0;           // number of requests so far
  uint64_t granted_ = 0;         // number of the last request that was done
  parameter_server::View view_;  // only for the keeper's thread
  std::vector<std::jthread> threads_;
};

}  // namespace cohort
