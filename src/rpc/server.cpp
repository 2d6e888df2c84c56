#include "rpc/server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "base/cpu_threads.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "rpc/address.h"
#include "rpc/grpc_channel.h"
#include "rpc/grpc_use.h"
#include "rpc/listener.h"
#include "rpc/local_end.h"
#include "rpc/local_socket.h"
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
class ServedCall final : public RpcCall {
 public:
  explicit ServedCall(Reactor& reactor) : reactor_(&reactor) {}
  ServedCall(const ServedCall&) = delete;
  ServedCall& operator=(const ServedCall&) = delete;
  ~ServedCall() override { finish({}, {grpc::StatusCode::INTERNAL, "[rpc] the call was not answered"}); }

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
  Reactor(std::string method, std::function<void(const std::string&, std::shared_ptr<ServedCall>)> serve)
      : method_(std::move(method)), serve_(std::move(serve)), call_(std::make_shared<ServedCall>(*this)) {
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
    if (const std::shared_ptr<ServedCall> call = watched_.lock()) call->cancel();
  }
  void OnDone() override { delete this; }

  void answer(const Frame& frame, const grpc::Status& status) {
    if (!status.ok()) return Finish(status);
    reply_ = frame;
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), status);
  }

 private:
  std::string method_;
  std::function<void(const std::string&, std::shared_ptr<ServedCall>)> serve_;
  std::shared_ptr<ServedCall> call_;  // null once a handler has the call
  std::weak_ptr<ServedCall> watched_ = call_;
  Frame reply_;
};

void ServedCall::finish(const Frame& frame, const grpc::Status& status) {
  Reactor* reactor = nullptr;
  {
    const std::lock_guard lock(mutex_);
    reactor = std::exchange(reactor_, nullptr);
  }
  if (reactor != nullptr) reactor->answer(frame, status);
}

struct HostAndPort {
  std::string host;
  int port = 0;
};

HostAndPort place_of(const std::string& address, const std::string& name) {
  const std::size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  // A cluster's address has no port 0, which is any port here.
  const auto parsed = parse_address(port == "0" ? address.substr(0, colon) + ":1" : address);
  if (!parsed) fail<InvalidArgument>("[rpc] ", name, ": \"", address, "\" is no host:port to listen on");
  return {.host = parsed->host, .port = port == "0" ? 0 : parsed->port};
}

void require_safe(const std::string& host, const std::string& address, const RpcServerOptions& options) {
  if (options.allow_insecure || options.security.given()) return;
  const std::string failure = "[rpc] " + options.name + " cannot listen on " + address;
  if (is_loopback(host, failure)) return;
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

// Sends small messages at once, and ends the connection when its other end is silent for too long.
void look_after(int connection) {
  const auto set = [&](int option, int value) { ::setsockopt(connection, IPPROTO_TCP, option, &value, sizeof(value)); };
  set(TCP_NODELAY, 1);
  set(TCP_USER_TIMEOUT, in_ms(kKeepaliveTimeout));
}

}  // namespace

void fail_to_find_call(std::string_view speaker, std::string_view method) {
  fail<Unimplemented>(speaker, " has no call ", method);
}

class RpcServer::Impl final : public grpc::CallbackGenericService {
 public:
  Impl(const std::string& address, const RpcServerOptions& options, RpcServer::Handler handler)
      : handler_(std::move(handler)),
        quick_(options.quick),
        quick_pool_(1),
        pool_(std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : std::max(2, hardware_cores()))),
        local_(tls_identity(options.security)) {
    const HostAndPort place = place_of(address, options.name);
    require_safe(place.host, address, options);
    for (const std::string& host : options.further_hosts) require_safe(host, host, options);
    start(options.security);
    const std::string failure = "[rpc] " + options.name + " cannot listen on ";
    std::vector<int> sockets = listen_on(place.host, place.port, failure + address);
    port_ = port_of(sockets.front());
    for (const std::string& host : options.further_hosts) {
      const std::vector<int> further = listen_on(host, port_, failure + host);
      sockets.insert(sockets.end(), further.begin(), further.end());
    }
    const int local = local_.show(c10::str(address.substr(0, address.rfind(':') + 1), port_));
    if (local >= 0) sockets.push_back(local);
    listener_.emplace("[rpc] " + options.name, std::move(sockets), [this, local](int connection, int socket) {
      take(connection, socket, /*from_network=*/socket != local);
    });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() override {
    listener_.reset();
    server_->Shutdown(std::chrono::system_clock::now() + kLastCalls);
  }

  int port() const { return port_; }
  std::shared_ptr<Channel> local_channel() { return std::make_shared<Channel>(server_->InProcessChannel({})); }

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    return new Reactor(context->method(), [this](const std::string& method, std::shared_ptr<ServedCall> call) {
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
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  using Arrived = Acceptor::NewConnectionParameters;

  void start(const SecurityOptions& security) {
    grpc::ServerBuilder builder;
    constexpr auto kByDescriptor = grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD;
    strangers_ = builder.experimental().AddExternalConnectionAcceptor(kByDescriptor, server_credentials(security));
    // Who comes by the local socket has shown to be this user by entering its folder.
    own_ = builder.experimental().AddExternalConnectionAcceptor(kByDescriptor, grpc::InsecureServerCredentials());
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2Frame);
    limit(builder);
    builder.SetMaxReceiveMessageSize(kLongestFrame);
    builder.SetMaxSendMessageSize(kLongestFrame);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    if (!server_) cohort::fail<Internal>("[rpc] gRPC's server does not start");
  }

  void take(int connection, int socket, bool from_network) {
    if (from_network) {
      look_after(connection);
    } else if (!is_own_user(connection)) {
      ::close(connection);
      return;
    }
    Arrived arrived;
    arrived.listener_fd = socket;
    arrived.fd = connection;
    (from_network ? strangers_ : own_)->HandleNewConnection(&arrived);
  }

  const GrpcUse use_;  // destroyed after the server
  RpcServer::Handler handler_;
  std::set<std::string> quick_;
  ThreadPool quick_pool_;
  std::unique_ptr<ThreadPool> pool_;
  int port_ = 0;
  LocalSocket local_;
  std::unique_ptr<Acceptor> strangers_;
  std::unique_ptr<Acceptor> own_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<ConnectionListener> listener_;  // gRPC's own stops for good when it has no descriptor for a connection
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
