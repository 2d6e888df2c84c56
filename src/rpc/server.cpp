#include "rpc/server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <mutex>

#include "base/cpu_threads.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "rpc/address.h"
#include "rpc/local_end.h"
#include "rpc/security.h"
#include "rpc/status.h"

namespace cohort {

namespace {

constexpr std::chrono::seconds kLastCalls(1);

constexpr int kMostCalls = 1024;                // under way on one connection; further ones wait at the caller
constexpr std::chrono::seconds kHandshake(10);  // from a connection to the proof of the other end
constexpr std::chrono::minutes kIdle(30);       // a connection without calls is ended, and made again for the next
constexpr std::size_t kMostBytes = std::size_t{8} << 30;  // of messages that arrive, on all connections together

class Reactor;

// A call as handlers see it. It outlives the reactor if a handler keeps it; the reactor outlives its answer.
class Call final : public RpcCall {
 public:
  explicit Call(Reactor& reactor) : reactor_(&reactor) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() override { finish({}, {grpc::StatusCode::INTERNAL, "[rpc] the call was not answered"}); }

  const Frame& request() const override { return request_; }
  Frame& request() { return request_; }
  void reply(const Frame& frame) override { finish(frame, grpc::Status::OK); }
  void fail(const std::exception& error) override {
    const CallStatus status = status_of(error);
    finish({}, {static_cast<grpc::StatusCode>(status.code), status.message});
  }
  bool cancelled() const override { return cancelled_; }
  void cancel() { cancelled_ = true; }

 private:
  void finish(const Frame& frame, const grpc::Status& status);

  std::mutex mutex_;
  Reactor* reactor_;  // null once the call is answered
  Frame request_;
  std::atomic<bool> cancelled_ = false;
};

// The end of one call towards gRPC. It deletes itself when gRPC is done with it.
class Reactor final : public grpc::ServerGenericBidiReactor {
 public:
  Reactor(std::string method, std::function<void(const std::string&, std::shared_ptr<Call>)> serve)
      : method_(std::move(method)), serve_(std::move(serve)), call_(std::make_shared<Call>(*this)) {
    StartRead(&call_->request());
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      serve_(method_, std::exchange(call_, nullptr));
    } else {
      call_.reset();  // ends the call if nobody has answered it
    }
  }
  void OnCancel() override {
    if (const std::shared_ptr<Call> call = watched_.lock()) call->cancel();
  }
  void OnDone() override { delete this; }

  void answer(const Frame& frame, const grpc::Status& status) {
    if (!status.ok()) return Finish(status);
    reply_ = frame;
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), status);
  }

 private:
  std::string method_;
  std::function<void(const std::string&, std::shared_ptr<Call>)> serve_;
  std::shared_ptr<Call> call_;  // null once a handler has the call
  std::weak_ptr<Call> watched_ = call_;
  Frame reply_;
};

void Call::finish(const Frame& frame, const grpc::Status& status) {
  Reactor* reactor = nullptr;
  {
    const std::lock_guard lock(mutex_);
    reactor = std::exchange(reactor_, nullptr);
  }
  if (reactor != nullptr) reactor->answer(frame, status);
}

void require_safe(const std::string& address, const RpcServerOptions& options) {
  if (options.allow_insecure || options.security.given()) return;
  const std::size_t colon = address.rfind(':');
  // Only the host is checked here, so any port will do; 0 would be refused as a cluster's address.
  const auto parsed = colon == std::string::npos ? std::nullopt : parse_address(address.substr(0, colon) + ":1");
  if (!parsed) fail<InvalidArgument>("[rpc] ", options.name, ": \"", address, "\" is no host:port to listen on");
  const std::string failure = "[rpc] " + options.name + " cannot listen on " + address;
  if (is_loopback(parsed->host, failure)) return;
  fail<FailedPrecondition>("[rpc] ", options.name, ": ", address,
                           " can be reached from other machines, and nothing says who may: start the job with "
                           "cohort launch, give all tasks a secret or certificates (security, --secret_file, "
                           "--tls_ca), or allow it (allow_insecure, --insecure) in a network that you trust");
}

int in_ms(std::chrono::milliseconds time) {
  return static_cast<int>(time.count());
}

// Bounds what callers can take of this process: connections that prove nothing, say nothing or have gone are ended, and
// nobody has calls or bytes without end in it.
void limit(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCalls);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, in_ms(kHandshake));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, in_ms(kIdle));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, in_ms(kKeepalive));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, in_ms(kKeepaliveTimeout));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, in_ms(kKeepalive / 2));
  builder.SetResourceQuota(grpc::ResourceQuota("cohort").Resize(kMostBytes));
}

}  // namespace

class RpcServer::Impl final : public grpc::CallbackGenericService {
 public:
  Impl(const std::string& address, const RpcServerOptions& options, RpcServer::Handler handler)
      : handler_(std::move(handler)),
        quick_(options.quick),
        quick_pool_(1),
        pool_(std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : std::max(2, hardware_cores()))) {
    require_safe(address, options);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, server_credentials(options.security), &port_);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second process on the port is an error, not a share
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2Frame);
    limit(builder);
    builder.SetMaxReceiveMessageSize(kLongestFrame);
    builder.SetMaxSendMessageSize(kLongestFrame);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    if (server_ && port_ != 0) return;
    fail<Unavailable>("[rpc] ", options.name, " cannot listen on ", address,
                      ": it is in use or not an address of this machine");
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() override {
    if (!server_) return;
    server_->Shutdown(std::chrono::system_clock::now() + kLastCalls);
  }

  int port() const { return port_; }
  std::shared_ptr<Channel> local_channel() { return server_->InProcessChannel({}); }

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    return new Reactor(context->method(), [this](const std::string& method, std::shared_ptr<Call> call) {
      ThreadPool& pool = quick_.contains(method) ? quick_pool_ : *pool_;
      pool.submit([this, method, call = std::move(call)] {
        try {
          handler_(method, call);
        } catch (const std::exception& error) {
          call->fail(error);
        }
      });
    });
  }

 private:
  RpcServer::Handler handler_;
  std::set<std::string> quick_;
  ThreadPool quick_pool_;
  std::unique_ptr<ThreadPool> pool_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

RpcServer::RpcServer(const std::string& address, const RpcServerOptions& options, RpcServer::Handler handler)
    : impl_(std::make_unique<Impl>(address, options, std::move(handler))) {}
RpcServer::~RpcServer() = default;

int RpcServer::port() const {
  return impl_->port();
}
std::shared_ptr<Channel> RpcServer::local_channel() {
  return impl_->local_channel();
}

}  // namespace cohort
