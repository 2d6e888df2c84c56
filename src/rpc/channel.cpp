#include "rpc/channel.h"

#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "base/deadline.h"
#include "base/fail.h"
#include "rpc/grpc_channel.h"
#include "rpc/local_socket.h"
#include "rpc/security.h"
#include "rpc/status.h"

namespace cohort {

namespace {

constexpr std::chrono::milliseconds kLastCallbacks = std::chrono::seconds(10);

constexpr std::chrono::seconds kLookAgain(1);  // for a local socket, while the network serves

grpc::ChannelArguments channel_arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // each client gets a connection of its own
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2Frame);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(std::chrono::milliseconds(kKeepalive).count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   static_cast<int>(std::chrono::milliseconds(kKeepaliveTimeout).count()));
  arguments.SetMaxReceiveMessageSize(kLongestFrame);
  arguments.SetMaxSendMessageSize(kLongestFrame);
  return arguments;
}

}  // namespace

Channel::Channel(std::shared_ptr<grpc::Channel> network) : Channel(std::move(network), nullptr, "") {}

Channel::Channel(std::shared_ptr<grpc::Channel> network, std::shared_ptr<grpc::Channel> local, std::string file)
    : network_(std::move(network)),
      local_(std::move(local)),
      file_(std::move(file)),
      network_stub_(network_),
      asked_((Clock::now() - kLookAgain).time_since_epoch().count()) {
  if (local_) local_stub_.emplace(local_);
}

grpc::GenericStub& Channel::stub() {
  return local_ && local_is_there() ? *local_stub_ : network_stub_;
}

bool Channel::local_is_there() {
  const grpc_connectivity_state state = local_->GetState(/*try_to_connect=*/false);
  if (state == GRPC_CHANNEL_READY) return true;
  const Clock::time_point now = Clock::now();
  const Clock::time_point asked{Clock::duration(asked_.load())};
  if (now - asked < kLookAgain && network_->GetState(false) == GRPC_CHANNEL_READY) return false;
  const bool there = state != GRPC_CHANNEL_TRANSIENT_FAILURE && listens_at(file_);
  if (!there) asked_ = now.time_since_epoch().count();
  return there;
}

std::shared_ptr<Channel> open_channel(const std::string& address, const SecurityOptions& security) {
  const GrpcUse use;  // before the channels are made
  grpc::ChannelArguments arguments = channel_arguments();
  std::shared_ptr<grpc::Channel> local;
  const std::string file = local_socket(address, tls_identity(security));
  if (!file.empty()) {
    local = grpc::CreateCustomChannel("unix:" + file, grpc::InsecureChannelCredentials(), arguments);
  }
  if (const std::string name = tls_name(security); !name.empty()) arguments.SetSslTargetNameOverride(name);
  return std::make_shared<Channel>(grpc::CreateCustomChannel(address, channel_credentials(security), arguments),
                                   std::move(local), file);
}

// The calls under way. They are shared with gRPC, which may still call back when the client is gone.
class RpcClient::Calls : public std::enable_shared_from_this<RpcClient::Calls> {
 public:
  Calls(std::string peer, std::shared_ptr<Channel> channel, const RpcClientOptions& options)
      : peer_(std::move(peer)), options_(options), channel_(std::move(channel)) {}

  void start(const std::string& method, const Frame& frame, std::chrono::milliseconds limit, Done done) {
    const auto call = std::make_shared<Call>();
    call->request = frame;
    call->context.set_deadline(std::chrono::system_clock::now() + limit);
    call->context.set_wait_for_ready(options_.wait_for_ready);
    call->done = std::move(done);
    {
      const std::lock_guard lock(mutex_);
      under_way_.insert(call);
      if (closed_) call->context.TryCancel();  // gRPC remembers it for when the call begins
    }
    channel_->stub().UnaryCall(
        &call->context, method, {}, &call->request, &call->reply,
        [self = shared_from_this(), call](const grpc::Status& status) { self->end(call, status); });
  }

  void cancel() {
    const std::lock_guard lock(mutex_);
    for (const auto& call : under_way_) call->context.TryCancel();
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    cancel();
  }

  void wait(const Deadline& deadline) {
    std::unique_lock lock(mutex_);
    idle_.wait_until(lock, deadline.when(), [&] { return under_way_.empty(); });
  }

 private:
  struct Call {
    grpc::ClientContext context;
    Frame request;
    Frame reply;
    Done done;
  };

  void end(const std::shared_ptr<Call>& call, const grpc::Status& status) {
    std::exception_ptr error;
    try {
      if (!status.ok()) raise_status({.code = status.error_code(), .message = status.error_message()}, peer_);
    } catch (...) {
      error = std::current_exception();
    }
    std::exchange(call->done, nullptr)(call->reply, error);
    const std::lock_guard lock(mutex_);
    under_way_.erase(call);
    idle_.notify_all();
  }

  std::string peer_;
  RpcClientOptions options_;
  const std::shared_ptr<Channel> channel_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::set<std::shared_ptr<Call>> under_way_;
  bool closed_ = false;
};

RpcClient::RpcClient(std::string name, std::shared_ptr<Channel> channel, const RpcClientOptions& options)
    : name_(std::move(name)), calls_(std::make_shared<Calls>(name_, std::move(channel), options)) {}
RpcClient::RpcClient(std::string name, const std::string& address, const SecurityOptions& security)
    : RpcClient(std::move(name), open_channel(address, security)) {}

// gRPC's threads have let go of everything when it returns: the connection must not be closed by one of them, perhaps
// while the program ends.
RpcClient::~RpcClient() {
  cancel_calls();
  const Deadline deadline(kLastCallbacks);
  calls_->wait(deadline);
  while (calls_.use_count() > 1 && !deadline.passed()) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void RpcClient::call(const std::string& method, const Frame& frame, std::chrono::milliseconds limit, Done done) {
  calls_->start(method, frame, limit, std::move(done));
}

std::future<Frame> RpcClient::call(const std::string& method, const Frame& frame, std::chrono::milliseconds limit) {
  const auto result = std::make_shared<std::promise<Frame>>();
  call(method, frame, limit, [result](const Frame& reply, const std::exception_ptr& error) {
    if (error) {
      result->set_exception(error);
    } else {
      result->set_value(reply);
    }
  });
  return result->get_future();
}

void RpcClient::cancel_calls() {
  calls_->cancel();
}

void RpcClient::close() {
  calls_->close();
}

}  // namespace cohort
