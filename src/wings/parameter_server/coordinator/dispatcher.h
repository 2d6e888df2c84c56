// Dispatcher: the coordinator's side of its workers (messages.proto). It knows which workers are there and hands out
// work.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/liveness.h"
#include "messages.pb.h"
#include "rpc/server.h"
#include "wings/parameter_server/coordinator/closure_queue.h"

namespace cohort {

struct DispatcherOptions {
  std::string catalog;             // Catalog::description()
  std::vector<std::string> steps;  // names of the registered functions, sorted
  // The number of workers that the cluster names. Others may join all the same.
  int workers = 0;
  // A worker that is silent for so long is lost, and its closures go to others.
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(5);
};

// Thread-safe.
class Dispatcher {
 public:
  Dispatcher(ClosureQueue& queue, DispatcherOptions options);
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;
  ~Dispatcher();

  // Handles a call, as RpcServer::Handler.
  void handle(const std::string& method, const std::shared_ptr<RpcCall>& call);

  void set_view(const parameter_server::View& view);
  // Tells the workers that the run is over. Returns when all that have joined, and all of the cluster, have heard it,
  // or at the timeout.
  void finish(std::chrono::milliseconds timeout = std::chrono::seconds(5));
  int num_workers() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Worker {
    Liveness alive;
    std::string process;
    uint64_t session = 0;  // grows with each worker that joins
  };
  struct Held {
    int worker = 0;
    uint64_t incarnation = 0;
    std::shared_ptr<RpcCall> call;
    Clock::time_point until;
    std::pair<uint64_t, uint64_t> view = {};  // the epoch and number of the view that a heartbeat knows
  };

  void join(const std::shared_ptr<RpcCall>& call);
  void next(const std::shared_ptr<RpcCall>& call);
  void beat(const std::shared_ptr<RpcCall>& call);
  void require_place(int worker, const parameter_server::JoinRequest& request);
  void hear(int worker, uint64_t incarnation);
  void stop_waiting(int worker);
  void note_told(int worker);
  void serve();
  void answer_beats(Clock::time_point now);
  void drop_lost(Clock::time_point now);
  void tick(const std::stop_token& stop);
  void reply_to(const Held& held, const std::optional<Closure>& closure);

  ClosureQueue& queue_;
  const DispatcherOptions options_;
  mutable std::mutex mutex_;
  parameter_server::View view_;
  std::atomic<bool> over_ = false;
  std::map<int, Worker> workers_;
  uint64_t sessions_ = 0;
  std::set<int> told_;       // workers that know that the run is over
  std::list<Held> waiting_;  // questions that wait for work
  std::list<Held> beats_;
  std::condition_variable_any ending_;
  std::jthread ticker_;
};

}  // namespace cohort
