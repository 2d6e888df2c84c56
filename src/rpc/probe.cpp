#include "rpc/probe.h"

#include "base/fail.h"

namespace cohort {

RpcProbe::RpcProbe(std::string name, Open open, const RpcClientOptions& options)
    : name_(std::move(name)),
      open_(std::move(open)),
      options_(options),
      client_(std::make_shared<RpcClient>(name_, open_(), options_)) {}

RpcProbe::RpcProbe(std::string name, const std::string& address, const SecurityOptions& security)
    : RpcProbe(std::move(name), [address, security] { return open_channel(address, security); }) {}

RpcProbe::~RpcProbe() = default;

Frame RpcProbe::call(const std::string& method, const Frame& frame, std::chrono::milliseconds limit) {
  std::shared_ptr<RpcClient> client;
  {
    const std::lock_guard lock(mutex_);
    if (!client_ && !closed_) client_ = std::make_shared<RpcClient>(name_, open_(), options_);
    client = client_;
  }
  if (!client) fail<Cancelled>("[rpc] no call of ", name_, " is made any more");
  const auto give_up_connection = [&] {
    const std::lock_guard lock(mutex_);
    if (client_ == client) client_.reset();  // calls of other threads may have a new one already
  };
  try {
    return client->call(method, frame, limit).get();
  } catch (const DeadlineExceeded&) {
    give_up_connection();
    throw;
  } catch (const Unavailable&) {
    give_up_connection();
    throw;
  }
}

void RpcProbe::close() {
  std::shared_ptr<RpcClient> client;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    client = std::exchange(client_, nullptr);
  }
  if (client) client->close();
}

}  // namespace cohort
