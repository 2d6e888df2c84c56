// ServerWatch: hears of the parameter servers for the keeper. It asks each of them for signs of life, on a thread of
// its own, and notes which process of it is there.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cluster/liveness.h"
#include "messages.pb.h"
#include "wings/parameter_server/catalog.h"
#include "wings/parameter_server/client/client.h"
#include "wings/parameter_server/coordinator/keeper_options.h"
#include "wings/parameter_server/coordinator/roster.h"

namespace cohort {

// What is known of the servers. The watch notes what is heard, and the keeper what was done. `mutex` guards the rest.
struct KnownServers {
  KnownServers(const RosterOptions& options, std::chrono::milliseconds heartbeat_timeout)
      : roster(options), alive(static_cast<std::size_t>(options.servers), Liveness(heartbeat_timeout)) {}

  static std::string name(int server);
  // Returns the beginning of an order for a process, in the present view. It takes the mutex.
  parameter_server::Order order(uint64_t process = 0) const;
  // Throws FailedPrecondition if another coordinator is in charge. The caller holds the mutex.
  void require_charge() const;

  mutable std::mutex mutex;
  std::condition_variable wake;  // tells of news, and of the end
  Roster roster;
  std::vector<Liveness> alive;
  bool begun = false;   // the epoch is known
  bool noted = false;   // there is news for the keeper's thread
  bool fenced = false;  // another coordinator is in charge
};

class ServerWatch {
 public:
  // Makes a watch that notes what it hears in `known`. Everything that it is given has to outlive it.
  ServerWatch(KnownServers& known, const Catalog& catalog, ServerClient& client, const KeeperOptions& options,
              const KeeperEvents& events)
      : known_(known), catalog_(catalog), client_(client), options_(options), events_(events) {}
  ServerWatch(const ServerWatch&) = delete;
  ServerWatch& operator=(const ServerWatch&) = delete;
  ~ServerWatch();

  // Waits for the servers that are needed, and a moment for the others; with `one_is_enough` a server of each home is
  // needed, otherwise all. Returns the latest epoch that they know. DeadlineExceeded names those that are missing.
  // FailedPrecondition: a server runs another program.
  uint64_t meet(bool one_is_enough);
  // Begins to ask for signs of life.
  void start();
  // Lets its threads end.
  void request_stop();
  // Notes that a process refused what a coordinator in charge may order: it was restarted, or lacks the shards of a
  // view.
  void note_refusal(int server, uint64_t process);

 private:
  using Hello = parameter_server::HelloReply;

  Hello hello(int server, bool first, std::chrono::milliseconds limit);
  void watch(int server, const std::stop_token& stop);
  void tell_done(int server, int64_t& told);
  void note(int server, const Hello& reply);
  void note_silence(int server, std::chrono::milliseconds patience);

  KnownServers& known_;
  const Catalog& catalog_;
  ServerClient& client_;
  const KeeperOptions& options_;
  const KeeperEvents& events_;
  std::vector<std::jthread> threads_;
};

}  // namespace cohort
