#include "cluster/coordination/server.h"

#include <grpcpp/grpcpp.h>

#include <thread>

#include "base/fail.h"
#include "coordination.grpc.pb.h"
#include "rpc/security.h"

namespace cohort {

namespace {

using Time = CoordinationState::Time;
using Kind = CoordinationAnswer::Kind;
namespace proto = coordination;

// Longer waits than this are cut, so that a call of a caller that is gone does not stay for ever.
constexpr uint32_t kLongestWait = 60'000;
constexpr std::chrono::milliseconds kTick(20);
// Bytes, so that whoever reaches the port cannot fill the memory with one message.
constexpr int kLongestMessage = 64 << 20;

Time now() {
  return std::chrono::steady_clock::now();
}
Time after(uint32_t wait_ms) {
  return now() + std::chrono::milliseconds(std::min(wait_ms, kLongestWait));
}

TaskProcess process(const proto::Task& task) {
  return {.task = {task.type(), task.index()}, .incarnation = task.incarnation()};
}

grpc::Status status(const CoordinationAnswer& answer) {
  switch (answer.kind) {
    case Kind::kRefused:
      return {grpc::StatusCode::FAILED_PRECONDITION, answer.reason};
    case Kind::kFailed:
      return {grpc::StatusCode::ABORTED, answer.reason};
    case Kind::kOver:
      return {grpc::StatusCode::ALREADY_EXISTS, answer.reason};
    default:
      return grpc::Status::OK;
  }
}

class Service final : public proto::Coordination::CallbackService {
 public:
  explicit Service(CoordinationState& state) : state_(state) {}

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context, const proto::RegisterRequest* request,
                                     proto::RegisterReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    state_.register_task(process(request->task()), request->cluster(), request->process(), request->info(), now(),
                         after(request->wait_ms()), [reactor, reply](const CoordinationAnswer& answer) {
                           reply->set_complete(answer.kind == Kind::kDone);
                           for (const std::string& name : answer.missing) reply->add_missing(name);
                           for (const std::string& info : answer.infos) reply->add_info(info);
                           reactor->Finish(status(answer));
                         });
    return reactor;
  }

  grpc::ServerUnaryReactor* Beat(grpc::CallbackServerContext* context, const proto::BeatRequest* request,
                                 proto::BeatReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    state_.beat(process(request->task()), request->known_left(), now(), after(request->wait_ms()),
                [reactor, reply](const CoordinationAnswer& answer) {
                  for (const std::string& name : answer.left) reply->add_left(name);
                  reactor->Finish(status(answer));
                });
    return reactor;
  }

  grpc::ServerUnaryReactor* Barrier(grpc::CallbackServerContext* context, const proto::BarrierRequest* request,
                                    proto::BarrierReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    state_.barrier(process(request->task()), request->name(), now(), after(request->wait_ms()),
                   [reactor, reply](const CoordinationAnswer& answer) {
                     reply->set_complete(answer.kind == Kind::kDone);
                     for (const std::string& name : answer.missing) reply->add_missing(name);
                     reactor->Finish(status(answer));
                   });
    return reactor;
  }

  grpc::ServerUnaryReactor* Fail(grpc::CallbackServerContext* context, const proto::FailRequest* request,
                                 proto::Empty* /*reply*/) override {
    state_.fail(process(request->task()), request->reason());
    return done(context);
  }

  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context, const proto::LeaveRequest* request,
                                  proto::Empty* /*reply*/) override {
    state_.leave(process(request->task()));
    return done(context);
  }

  grpc::ServerUnaryReactor* Put(grpc::CallbackServerContext* context, const proto::PutRequest* request,
                                proto::PutReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    state_.put(process(request->task()), request->key(), request->value(), request->if_absent(),
               [reactor, reply](const CoordinationAnswer& answer) {
                 reply->set_value(answer.value);
                 reactor->Finish(status(answer));
               });
    return reactor;
  }

  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const proto::GetRequest* request,
                                proto::GetReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    state_.get(process(request->task()), request->key(), after(request->wait_ms()),
               [reactor, reply](const CoordinationAnswer& answer) {
                 reply->set_found(answer.kind == Kind::kDone);
                 reply->set_value(answer.value);
                 reactor->Finish(status(answer));
               });
    return reactor;
  }

 private:
  static grpc::ServerUnaryReactor* done(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  CoordinationState& state_;
};

}  // namespace

class CoordinationServer::Impl {
 public:
  Impl(const ClusterSpec& cluster, const std::string& address, std::chrono::milliseconds heartbeat_timeout,
       const SecurityOptions& security)
      : state_(cluster, heartbeat_timeout), service_(state_) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, server_credentials(security), &port);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second process on the port is an error, not a share
    builder.SetMaxReceiveMessageSize(kLongestMessage);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (!server_ || port == 0) {
      fail<Unavailable>("[cluster] the coordination leader cannot listen on ", address,
                        ": it is in use or not an address of this machine");
    }
    ticker_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        state_.tick(now());
        std::this_thread::sleep_for(kTick);
      }
    });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    ticker_.request_stop();
    state_.shut_down();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }

  const CoordinationState& state() const { return state_; }
  std::shared_ptr<grpc::Channel> local_channel() { return server_->InProcessChannel({}); }

 private:
  CoordinationState state_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::jthread ticker_;
};

CoordinationServer::CoordinationServer(const ClusterSpec& cluster, const std::string& address,
                                       std::chrono::milliseconds heartbeat_timeout, const SecurityOptions& security)
    : impl_(std::make_unique<Impl>(cluster, address, heartbeat_timeout, security)) {}
CoordinationServer::~CoordinationServer() = default;

const CoordinationState& CoordinationServer::state() const {
  return impl_->state();
}
std::shared_ptr<grpc::Channel> CoordinationServer::local_channel() {
  return impl_->local_channel();
}

}  // namespace cohort
