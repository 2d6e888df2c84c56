// WorkerLoop: the loop of a worker: it asks the coordinator for work, does it, and returns the results.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/wait_reporting.h"
#include "messages.pb.h"
#include "rpc/channel.h"
#include "rpc/probe.h"
#include "wings/parameter_server/client/client.h"
#include "wings/parameter_server/coordinator/closure_queue.h"

namespace cohort {

struct WorkerLoopOptions {
  int index = 0;
  std::string coordinator;  // the coordinator's address
  SecurityOptions security = {};
  std::string catalog;             // Catalog::description()
  std::vector<std::string> steps;  // names of the registered functions, sorted
  // The time that the coordinator may be away, at the beginning and later.
  std::chrono::milliseconds coordinator_timeout = std::chrono::hours(1);
  std::chrono::milliseconds report_interval = std::chrono::seconds(5);
};

// Used by one thread.
class WorkerLoop {
 public:
  using Run = std::function<std::vector<torch::Tensor>(const Closure& closure)>;

  // Makes the loop. `servers` gets the views that the coordinator sends.
  WorkerLoop(ServerClient& servers, Run run, WorkerLoopOptions options);
  WorkerLoop(const WorkerLoop&) = delete;
  WorkerLoop& operator=(const WorkerLoop&) = delete;
  ~WorkerLoop();

  // Works until the run is over. Unavailable: the coordinator stays away. FailedPrecondition: it runs another program.
  void run();

 private:
  struct Result {
    parameter_server::NextRequest::Finished finished;
    std::vector<torch::Tensor> tensors;
  };
  struct Question {
    std::future<Frame> answer;
    std::vector<Result> results;  // the results that travel with the question
  };

  void join();
  void beat(const std::stop_token& stop);
  void round();
  Question ask(bool want);
  void take(Question question);
  void put_back(std::vector<Result> results);
  void execute(const Closure& closure);
  // Waits a little. Throws Unavailable if the coordinator has been away for too long.
  void wait_for_coordinator(const std::exception& error);
  void coordinator_is_there();

  ServerClient& servers_;
  const Run run_;
  const WorkerLoopOptions options_;
  const uint64_t incarnation_;
  RpcClient coordinator_;
  RpcProbe heart_;  // the coordinator, for signs of life
  std::atomic<std::chrono::milliseconds> heartbeat_{std::chrono::milliseconds(1000)};
  std::atomic<bool> over_ = false;
  std::atomic<bool> unknown_ = false;  // the coordinator has said that it does not know this worker
  bool after_loss_ = false;
  std::deque<Closure> have_;
  std::optional<Question> asked_;   // the question for more work while the first of have_ runs
  std::vector<Result> results_;     // results that are not sent yet
  std::optional<WaitReport> away_;  // the wait for the coordinator since it was last heard of
  std::jthread beater_;
};

}  // namespace cohort
