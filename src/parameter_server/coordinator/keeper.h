// ServerKeeper: takes care of the parameter servers for the coordinator. It gives them their shards and watches them.
// When a server is lost it makes the backup the primary, or fills the server again when it comes back. Each change is a
// view. What has to be done is decided by a Roster; the keeper does it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "cluster/liveness.h"
#include "messages.pb.h"
#include "parameter_server/catalog.h"
#include "parameter_server/client/client.h"
#include "parameter_server/client/saved_variables.h"
#include "parameter_server/coordinator/epochs.h"
#include "parameter_server/coordinator/roster.h"

namespace cohort {

struct KeeperOptions {
  // The number of the run, in which epochs only grow. What clients know of another run is of no use.
  uint64_t run = 1;
  int replicas = 1;  // 2: every shard is on two servers
  // The directory in which the epochs of its coordinators are noted. Empty: nowhere; servers know them, too.
  std::filesystem::path directory = {};
  // The longest wait for all servers at first, and for a lost one to come back.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
  std::chrono::milliseconds return_timeout = std::chrono::minutes(10);
  std::chrono::milliseconds report_interval = std::chrono::seconds(5);
  // The time that a server may be silent before it is lost.
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(5);
  // The longest time of a call that moves shards, and the longest time without progress of a copy between servers.
  std::chrono::milliseconds call_timeout = std::chrono::minutes(1);
};

// The events that the keeper reports, on its own threads.
struct KeeperEvents {
  std::function<void(const parameter_server::View&)> view = [](const auto&) {};
  // Shards were filled with the values from before this closure, so that the work from it on has to be repeated.
  // Returns whether all of it will be.
  std::function<bool(int64_t)> restored = [](int64_t) { return true; };
  // Returns the id before which all work is done. Servers forget the updates of that work.
  std::function<int64_t()> done_below = [] { return int64_t{0}; };
  // The run cannot go on: a server did not come back in time, or another coordinator is in charge.
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
  using Hello = parameter_server::HelloReply;

  void ask(const char* what, std::function<void()> wish);
  bool grant();
  Hello hello(int server, bool first, std::chrono::milliseconds limit);
  uint64_t meet();
  void begin(const std::map<std::size_t, double>& rates);
  void fill_all();
  void watch(int server, const std::stop_token& stop);
  void tell_done(int server, int64_t& told);
  void note(int server, const Hello& reply);
  void note_silence(int server, std::chrono::milliseconds patience);
  void note_refusal(int server, uint64_t process);
  void require_charge() const;
  void keep(const std::stop_token& stop);
  RosterAction::Kind step();
  void publish();
  void give_view(const parameter_server::View& view);
  void publish_changes();
  void fill(const RosterAction& action);
  void copy(const RosterAction& action);
  void look_for_missing();
  int64_t place(int home, int server, uint64_t process);
  parameter_server::Order order(uint64_t process = 0) const;
  std::string name(int server) const;

  const std::shared_ptr<const Catalog> catalog_;
  ServerClient& client_;
  const KeeperOptions options_;
  const KeeperEvents events_;
  const Epochs epochs_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Roster roster_;
  std::vector<Liveness> alive_;
  std::shared_ptr<const SavedVariables> source_;
  int64_t source_closure_ = 0;
  bool begun_ = false;    // the epoch is known
  bool started_ = false;  // all homes were served
  bool noted_ = false;    // there is news for the keeper's thread
  bool fenced_ = false;   // another coordinator is in charge
  bool reported_missing_server_ = false;
  std::function<void()> wish_;  // a request of another thread to the keeper's thread
  uint64_t asked_ = 0;          // number of requests so far
  uint64_t granted_ = 0;        // number of the last request that was done
  // The next ones are only for the keeper's thread.
  uint64_t fills_ = 0;                  // the number of attempts to fill a home
  RosterAction copy_;                   // the copy under way
  uint64_t copied_ = 0;                 // the bytes of it that have been sent
  std::optional<Deadline> copy_until_;  // the end of the wait for more of them
  std::vector<std::jthread> threads_;
};

}  // namespace cohort
