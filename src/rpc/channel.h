// RpcClient: a task's end of the calls to another one: one frame there, one frame back, over gRPC. What the frames mean
// is not known here.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "cohort/cluster/security.h"
#include "rpc/frame.h"

namespace grpc {
class Channel;
}

namespace cohort {

using grpc::Channel;

// Opens a connection of its own to the address ("host:port"), which is made again whenever it breaks. Errors of the
// security options: InvalidArgument.
std::shared_ptr<Channel> open_channel(const std::string& address, const SecurityOptions& security = {});

struct RpcClientOptions {
  // Calls wait, as long as their time lasts, for a server that is not there yet; else they end with Unavailable at
  // once.
  bool wait_for_ready = false;
};

// This task's end towards another one's server. Thread-safe.
class RpcClient {
 public:
  // `name` is the other end's, in messages: "/job:ps/task:0".
  RpcClient(std::string name, std::shared_ptr<Channel> channel, const RpcClientOptions& options = {});
  RpcClient(std::string name, const std::string& address, const SecurityOptions& security = {});
  RpcClient(const RpcClient&) = delete;
  RpcClient& operator=(const RpcClient&) = delete;
  // Cancels calls under way and waits for them.
  ~RpcClient();

  const std::string& name() const { return name_; }

  // Calls back, from a thread of gRPC's that must not wait, with what came back or with the error: what the other end's
  // handler threw; Unavailable: it is not there or went away; DeadlineExceeded: no answer in time; Cancelled: by
  // cancel_calls() or close().
  using Done = std::function<void(const Frame& reply, const std::exception_ptr& error)>;
  void call(const std::string& method, const Frame& frame, std::chrono::milliseconds limit, Done done);
  // The same as a future.
  std::future<Frame> call(const std::string& method, const Frame& frame, std::chrono::milliseconds limit);

  // Ends all calls under way.
  void cancel_calls();
  // Ends them, and at once those to come, with Cancelled.
  void close();

 private:
  class Calls;
  std::string name_;
  std::shared_ptr<Calls> calls_;
};

}  // namespace cohort
