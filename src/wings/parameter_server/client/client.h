// ServerClient: a task's end towards the parameter servers. Its pulls and pushes survive the loss of a server.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "messages.pb.h"
#include "rpc/channel.h"
#include "rpc/probe.h"
#include "wings/parameter_server/catalog.h"
#include "wings/parameter_server/server/update_log.h"

namespace cohort {

struct ServerClientOptions {
  std::vector<std::string> addresses;  // addresses of the ps tasks, by index
  SecurityOptions security = {};
  // The longest time of one call. After it the call is repeated.
  std::chrono::milliseconds call_timeout = std::chrono::seconds(30);
  // The longest time of one request, with all its repetitions.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // The type of floating-point values on the way: bfloat16 or float16 halve the traffic; NONE: their own type.
  rpc::ElementType element_type = rpc::NONE;
};

// A request to read a shard, or rows of one, into `out`, which has its shape and dtype.
struct Pull {
  uint32_t shard = 0;
  torch::Tensor out;
  torch::Tensor indices = {};  // int64, counted from the shard's first row; undefined: the whole shard
  int64_t version = -1;        // the version that `out` has before and afterwards; -1: none
};

struct Push {
  uint32_t shard = 0;
  parameter_server::PushRequest::Kind kind = parameter_server::PushRequest::GRADIENT;
  UpdateId id = {};
  Share share = {};
  torch::Tensor value = {};    // contiguous, on the CPU; it must not change while it is on its way
  torch::Tensor indices = {};  // only for ROWS
  torch::Tensor out = {};      // if defined, it gets the value after the update
  int64_t version = -1;        // the version afterwards
};

// If a server does not answer, or does not serve the shard any more, the call is repeated in the next view. After
// `timeout` it fails with Unavailable, which has the server's name and its last error. An error in the call itself is
// thrown at once. Thread-safe.
class ServerClient {
 public:
  ServerClient(std::shared_ptr<const Catalog> catalog, ServerClientOptions options);
  ServerClient(const ServerClient&) = delete;
  ServerClient& operator=(const ServerClient&) = delete;
  ~ServerClient();

  // Takes over a view of the coordinator; an older one has no effect. Calls under way to servers that lost a home end.
  void set_view(const parameter_server::View& view);
  parameter_server::View view() const;
  // Ends every present and later call with Cancelled and this reason.
  void close(const std::string& reason);
  // Ends the present pulls and pushes with Cancelled and this reason.
  void give_up(const std::string& reason);

  // Carries out the pulls. Overtaken: the update `unless` had been applied before.
  void pull(std::vector<Pull>& pulls, const std::optional<UpdateId>& unless = {});
  void push(std::vector<Push>& pushes);

  // Makes a call that is neither pull nor push to one server, without repetition.
  Frame call(int server, const std::string& method, const Frame& frame, std::chrono::milliseconds limit);
  // Returns a client for the signs of life of one server.
  std::unique_ptr<RpcProbe> probe(int server) const;
  std::future<Frame> start(int server, const std::string& method, const Frame& frame, std::chrono::milliseconds limit);

 private:
  template <typename Kind>
  class Exchange;
  int primary(const parameter_server::View& view, uint32_t shard) const;
  // Waits until there may be a reason to try again.
  void await_change(const parameter_server::View& seen, const Deadline& deadline, std::chrono::milliseconds most);
  // Throws Cancelled if the client was closed, or has given up what was under way since `given_up`.
  void require_open(uint64_t given_up) const;
  uint64_t given_up() const;

  const std::shared_ptr<const Catalog> catalog_;
  const ServerClientOptions options_;
  std::vector<std::unique_ptr<RpcClient>> servers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  parameter_server::View view_;
  std::optional<std::string> closed_;
  uint64_t given_up_ = 0;  // number of calls of give_up()
  std::string given_up_for_;
};

}  // namespace cohort
