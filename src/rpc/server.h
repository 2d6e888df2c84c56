// RpcServer: answers calls over gRPC; a call is one frame there and one frame back. This layer does not know what the
// frames mean.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/cluster/security.h"
#include "rpc/channel.h"
#include "rpc/frame.h"

namespace cohort {

// A call that has arrived. It is answered once, by any thread, now or later. If its last owner lets it go unanswered it
// ends with Internal. Thread-safe.
class RpcCall {
 public:
  virtual ~RpcCall() = default;

  virtual const Frame& request() const = 0;
  virtual void reply(const Frame& frame) = 0;
  // Answers with an error: the caller gets an exception of the same kind and message if it is a cohort::Error,
  // otherwise Internal.
  virtual void fail(const std::exception& error) = 0;
  // Returns whether the caller has gone or given up.
  virtual bool cancelled() const = 0;
};

struct RpcServerOptions {
  std::string name = "this task";  // the name of the task that listens, in messages
  SecurityOptions security = {};
  int threads = 0;  // number of threads that run handlers; 0: one for each core, at least 2
  // Methods that never wait. They have a thread of their own, so that heartbeats are answered while all others are
  // busy.
  std::set<std::string> quick = {};
  std::vector<std::string> further_hosts = {};  // hosts of this machine to listen on beside that of the address
  // With true, calls from other machines are accepted although callers are not authenticated.
  bool allow_insecure = false;
};

// Fails because a task has no such call. `speaker` opens the message.
[[noreturn]] void fail_to_find_call(std::string_view speaker, std::string_view method);

class RpcServer {
 public:
  // The function that is called for every call, on one of the server's threads. An exception of it is the answer. It
  // has to be quick, or to answer later from another thread.
  using Handler = std::function<void(const std::string& method, const std::shared_ptr<RpcCall>& call)>;

  // Listens on `address` ("host:port"; port 0: any) and on the further hosts, and nowhere else.
  // Unavailable: one of them cannot be bound. FailedPrecondition: one is reachable from other machines, and there is no
  // security.
  RpcServer(const std::string& address, const RpcServerOptions& options, Handler handler);
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;
  // Accepts no more calls and gives those under way a second. Handlers that keep calls have to release them before.
  ~RpcServer();

  int port() const;

  // Returns a channel to this server that does not use the network. Its clients have to be destroyed before the server.
  std::shared_ptr<Channel> local_channel();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
