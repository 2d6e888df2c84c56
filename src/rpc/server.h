// RpcServer: answers calls, one frame there and one frame back, over gRPC. What the frames mean is not known here.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "cohort/cluster/security.h"
#include "rpc/channel.h"
#include "rpc/frame.h"

namespace cohort {

// A call that came. Thread-safe; answered once, by any thread, now or later. One that is never answered ends as
// Internal when it is let go.
class RpcCall {
 public:
  virtual ~RpcCall() = default;

  virtual const Frame& request() const = 0;
  virtual void reply(const Frame& frame) = 0;
  // The caller gets an exception of the same kind and message, where it is a cohort::Error, else Internal.
  virtual void fail(const std::exception& error) = 0;
  // Whether the caller has gone or given up.
  virtual bool cancelled() const = 0;
};

struct RpcServerOptions {
  std::string name = "this task";  // who listens, in messages
  SecurityOptions security = {};
  int threads = 0;  // that run the handlers; 0: one for each core, at least 2
  // Methods that never wait, with a thread of their own: signs of life are answered while all others are busy.
  std::set<std::string> quick = {};
  // Whether to listen beyond this machine although nobody has to show who he is.
  bool allow_insecure = false;
};

class RpcServer {
 public:
  // Called for every call, on one of the server's threads; what it throws is the answer. Has to be quick or to answer
  // later from another thread.
  using Handler = std::function<void(const std::string& method, const std::shared_ptr<RpcCall>& call)>;

  // Listens on `address` ("host:port"; port 0: any) and nowhere else. Unavailable: it cannot be bound.
  // FailedPrecondition: it is reachable from other machines, and there is no security.
  RpcServer(const std::string& address, const RpcServerOptions& options, Handler handler);
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;
  // Takes no more calls and gives those under way a second. Whoever keeps calls to answer them later lets go of them
  // before.
  ~RpcServer();

  int port() const;

  // Returns a channel to this server that does not use the network. Its clients go before the server does.
  std::shared_ptr<Channel> local_channel();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
