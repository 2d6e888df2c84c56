// ServerClient: a task's end towards the parameter servers: pulls and pushes that survive the loss of a server.
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
#include "parameter_server/catalog.h"
#include "parameter_server/server/update_log.h"
#include "rpc/channel.h"

namespace cohort {

struct ServerClientOptions {
  std::vector<std::string> addresses;  // of the ps tasks, by index
  SecurityOptions security = {};
  // Of one call; it is made again then.
  std::chrono::milliseconds call_timeout = std::chrono::seconds(30);
  // Of everything that is asked for at once, with all that is tried again.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // Of floating-point values on the way: bfloat16 or float16 halve it; NONE: as they are.
  rpc::ElementType element_type = rpc::NONE;
};

// A shard, or rows of one, to be read into `out`, which has the shape and the dtype.
struct Pull {
  uint32_t shard = 0;
  torch::Tensor out;
  torch::Tensor indices = {};  // int64, counted from the shard's first row; undefined: all of it
  int64_t version = -1;        // that `out` has, and has afterwards; -1: none
};

struct Push {
  uint32_t shard = 0;
  parameter_server::PushRequest::Kind kind = parameter_server::PushRequest::GRADIENT;
  UpdateId id = {};
  Share share = {};
  torch::Tensor value = {};    // contiguous, on the CPU; not changed while it is on its way
  torch::Tensor indices = {};  // of ROWS
  torch::Tensor out = {};      // gets the value after it, if it is defined
  int64_t version = -1;        // afterwards
};

// Thread-safe. Where a server does not answer, or is not who serves the shard any more, the call is made again, in the
// view that comes then, until `timeout`: Unavailable, with the server's name and what it said last. What is wrong with
// the call itself is thrown at once.
class ServerClient {
 public:
  ServerClient(std::shared_ptr<const Catalog> catalog, ServerClientOptions options);
  ServerClient(const ServerClient&) = delete;
  ServerClient& operator=(const ServerClient&) = delete;
  ~ServerClient();

  // What the coordinator says. An older one has no effect. Calls under way to servers that lost a home are given up.
  void set_view(const parameter_server::View& view);
  parameter_server::View view() const;
  // Every call, now and later, ends with Cancelled for this reason.
  void close(const std::string& reason);

  // Overtaken: an update `unless` had been made by then.
  void pull(std::vector<Pull>& pulls, const std::optional<UpdateId>& unless = {});
  void push(std::vector<Push>& pushes);

  // A call that is no pull or push, to one server; once.
  Frame call(int server, const std::string& method, const Frame& frame, std::chrono::milliseconds limit);
  std::future<Frame> start(int server, const std::string& method, const Frame& frame, std::chrono::milliseconds limit);

 private:
  template <typename Kind>
  class Exchange;
  int primary(const parameter_server::View& view, uint32_t shard) const;
  // Returns when there may be a reason to try again.
  void await_change(uint64_t seen, const Deadline& deadline, std::chrono::milliseconds most);
  void require_open() const;

  const std::shared_ptr<const Catalog> catalog_;
  const ServerClientOptions options_;
  std::vector<std::unique_ptr<RpcClient>> servers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  parameter_server::View view_;
  std::optional<std::string> closed_;
};

}  // namespace cohort
