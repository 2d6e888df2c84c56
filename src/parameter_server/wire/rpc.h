// Calls between tasks: one frame there, one frame back, over gRPC. What the frames mean is not known here.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>

#include "cohort/membership.h"

namespace cohort {

// No frame is longer: larger values go in several, so that neither end has to hold much for them.
constexpr int kLongestFrame = 64 << 20;

// What HTTP/2 cuts messages into; its own default is 16 KiB.
constexpr int kHttp2Frame = 4 << 20;

// A call that came. Thread-safe; answered once, by any thread, now or later. One that is never answered ends as
// Internal when it is let go.
class RpcCall {
 public:
  virtual ~RpcCall() = default;

  virtual const grpc::ByteBuffer& request() const = 0;
  virtual void reply(const grpc::ByteBuffer& frame) = 0;
  // The caller gets an exception of the same kind and message, where it is a cohort::Error, else Internal.
  virtual void fail(const std::exception& error) = 0;
  // Whether the caller has gone or given up.
  virtual bool cancelled() const = 0;
};

struct RpcServerOptions {
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

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// This task's end towards another one's server. Thread-safe.
class RpcClient {
 public:
  // `name` is the other end's, in messages: "/job:ps/task:0".
  RpcClient(std::string name, const std::string& address, const SecurityOptions& security = {});
  RpcClient(const RpcClient&) = delete;
  RpcClient& operator=(const RpcClient&) = delete;
  // Cancels calls under way and waits for them.
  ~RpcClient();

  const std::string& name() const { return name_; }

  // Calls back, from a thread of gRPC's that must not wait, with what came back or with the error: what the other end's
  // handler threw; Unavailable: it is not there or went away; DeadlineExceeded: no answer in time; Cancelled: by
  // cancel_calls().
  using Done = std::function<void(const grpc::ByteBuffer& reply, const std::exception_ptr& error)>;
  void call(const std::string& method, const grpc::ByteBuffer& frame, std::chrono::milliseconds limit, Done done);
  // The same as a future.
  std::future<grpc::ByteBuffer> call(const std::string& method, const grpc::ByteBuffer& frame,
                                     std::chrono::milliseconds limit);

  // Ends all calls under way.
  void cancel_calls();

 private:
  class Calls;
  std::string name_;
  std::shared_ptr<Calls> calls_;
};

}  // namespace cohort
