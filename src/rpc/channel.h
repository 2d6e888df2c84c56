// RpcClient: the end of a task that calls another one over gRPC: it sends one frame and receives one. This layer does
// not know what the frames mean.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "cohort/cluster/security.h"
#include "rpc/frame.h"

namespace cohort {

class Channel;  // the ways to a server; rpc/grpc_channel.h has it

// The silence after which an end asks the other one for a sign of life, and the wait for it, after which the connection
// is ended. The second one is TCP's user timeout, too.
constexpr std::chrono::seconds kKeepalive(20);
constexpr std::chrono::seconds kKeepaliveTimeout(20);

// Opens a new connection to the address ("host:port"), which is made again whenever it breaks. With security, it goes
// over TLS, or over the local socket of a server of this machine and user (rpc/local_socket.h), where nothing has to be
// encrypted. InvalidArgument: the security options are wrong.
std::shared_ptr<Channel> open_channel(const std::string& address, const SecurityOptions& security = {});

struct RpcClientOptions {
  // With true, calls wait, within their time limit, for a server that is not there yet. Otherwise they end with
  // Unavailable at once.
  bool wait_for_ready = false;
};

// This task's end of the connection to another task's server. Thread-safe.
class RpcClient {
 public:
  // Makes a client of the channel. `name` is the other end's name in messages: "/job:ps/task:0".
  RpcClient(std::string name, std::shared_ptr<Channel> channel, const RpcClientOptions& options = {});
  RpcClient(std::string name, const std::string& address, const SecurityOptions& security = {});
  RpcClient(const RpcClient&) = delete;
  RpcClient& operator=(const RpcClient&) = delete;
  // Cancels calls under way and waits for them.
  ~RpcClient();

  const std::string& name() const { return name_; }

  // The function that gets the reply or the error. It is called on a thread of gRPC, so it must not wait. The error is
  // the one that the other end's handler threw, or Unavailable (the other end is not there or went away),
  // DeadlineExceeded (no answer in time) or Cancelled (by cancel_calls() or close()).
  using Done = std::function<void(const Frame& reply, const std::exception_ptr& error)>;
  void call(const std::string& method, const Frame& frame, std::chrono::milliseconds limit, Done done);
  // Calls and returns the reply as a future.
  std::future<Frame> call(const std::string& method, const Frame& frame, std::chrono::milliseconds limit);

  // Ends all calls under way with Cancelled.
  void cancel_calls();
  // Ends all calls under way, and all later ones at once, with Cancelled.
  void close();

 private:
  class Calls;
  std::string name_;
  std::shared_ptr<Calls> calls_;
};

}  // namespace cohort
