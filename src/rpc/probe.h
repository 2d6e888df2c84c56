// RpcProbe: a client for signs of life and other calls that may be repeated. A call that gets no answer in time takes
// its connection with it, and the next one goes over a new connection. TCP waits longer and longer before it sends
// again: after an outage of a few seconds an old connection may stay silent for as long again, while a new one works at
// once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "rpc/channel.h"

namespace cohort {

class RpcProbe {
 public:
  using Open = std::function<std::shared_ptr<Channel>()>;

  // Makes a probe of the task with this name. `open` opens a connection to it.
  RpcProbe(std::string name, Open open, const RpcClientOptions& options = {});
  RpcProbe(std::string name, const std::string& address, const SecurityOptions& security = {});
  RpcProbe(const RpcProbe&) = delete;
  RpcProbe& operator=(const RpcProbe&) = delete;
  ~RpcProbe();

  // Calls and waits for the answer. Throws what RpcClient::call throws. Any thread.
  Frame call(const std::string& method, const Frame& frame, std::chrono::milliseconds limit);
  // Ends the call under way, and all later ones at once, with Cancelled. Any thread.
  void close();

 private:
  const std::string name_;
  const Open open_;
  const RpcClientOptions options_;
  std::mutex mutex_;
  std::shared_ptr<RpcClient> client_;
  bool closed_ = false;
};

}  // namespace cohort
