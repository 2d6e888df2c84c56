// RpcProbe: a client for signs of life and other calls that may be repeated. A call that gets no answer in time takes
// its connection with it, and the next one goes over a new connection. TCP waits longer and longer before it sends
// again: after an outage of a few seconds an old connection may stay silent for as long again, while a new one works at
// once. A call may also be sent again over further connections before its time has passed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

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

  // Calls and waits for the answer. Throws what RpcClient::call throws. While there is no answer the call is sent again
  // every `again`, each time over a new connection in place of the one before; the connection that the call began with
  // stays, too, and the first answer counts. Any thread.
  static constexpr std::chrono::milliseconds kNever = std::chrono::milliseconds::max();
  Frame call(const std::string& method, const Frame& frame, std::chrono::milliseconds limit,
             std::chrono::milliseconds again = kNever);
  // Ends the call under way, and all later ones at once, with Cancelled. Any thread.
  void close();

 private:
  class Race;
  std::shared_ptr<RpcClient> open_client();
  std::shared_ptr<RpcClient> kept_client();
  std::shared_ptr<RpcClient> further_client();  // null once this is closed

  const std::string name_;
  const Open open_;
  const RpcClientOptions options_;
  std::mutex mutex_;
  std::shared_ptr<RpcClient> client_;             // the one for the next call
  std::vector<std::weak_ptr<RpcClient>> opened_;  // all that calls may use
  bool closed_ = false;
};

}  // namespace cohort
