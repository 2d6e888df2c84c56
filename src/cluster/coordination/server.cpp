#include "cluster/coordination/server.h"

#include <algorithm>
#include <map>
#include <thread>

#include "base/fail.h"
#include "coordination.pb.h"
#include "rpc/calls.h"
#include "rpc/server.h"

namespace cohort {

namespace {

using Time = CoordinationState::Time;
using Call = std::shared_ptr<RpcCall>;
namespace proto = coordination;

// The longest wait of a call, in milliseconds. Longer ones are cut, so that the call of a caller that is gone ends.
constexpr uint32_t kLongestWait = 60'000;
constexpr std::chrono::milliseconds kTick(20);

Time now() {
  return std::chrono::steady_clock::now();
}
Time after(uint32_t wait_ms) {
  return now() + std::chrono::milliseconds(std::min(wait_ms, kLongestWait));
}

TaskProcess process(const proto::Task& task) {
  return {.task = {task.type(), task.index()}, .incarnation = task.incarnation()};
}

proto::Answer message_of(const CoordinationAnswer& answer) {
  proto::Answer message;
  message.set_kind(static_cast<proto::Answer::Kind>(answer.kind));  // both enumerations have the same order
  message.set_reason(answer.reason);
  message.mutable_missing()->Add(answer.missing.begin(), answer.missing.end());
  message.mutable_left()->Add(answer.left.begin(), answer.left.end());
  message.mutable_infos()->Add(answer.infos.begin(), answer.infos.end());
  message.set_value(answer.value);
  return message;
}

// Returns a reply that answers the call.
CoordinationState::Reply reply_to(const Call& call) {
  return [call](const CoordinationAnswer& given) {
    try {
      answer(call, message_of(given));
    } catch (const Error& error) {  // the values are too long for a frame
      call->fail(error);
    }
  };
}

}  // namespace

class CoordinationServer::Impl {
 public:
  Impl(const ClusterSpec& cluster, const std::string& address, std::chrono::milliseconds heartbeat_timeout,
       const JobSecurity& security, const std::vector<std::string>& further_hosts)
      : state_(cluster, heartbeat_timeout),
        // One thread is enough, because no handler takes time.
        server_(address,
                {.name = "the coordination leader",
                 .security = security.security,
                 .threads = 1,
                 .further_hosts = further_hosts,
                 .allow_insecure = security.allow_insecure},
                [this](const std::string& method, const Call& call) { handle(method, call); }),
        ticker_([this](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            state_.tick(now());
            std::this_thread::sleep_for(kTick);
          }
        }) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    ticker_.request_stop();
    state_.shut_down();
  }

  const CoordinationState& state() const { return state_; }
  std::shared_ptr<Channel> local_channel() { return server_.local_channel(); }

 private:
  void handle(const std::string& method, const Call& call) {
    static const std::map<std::string, void (Impl::*)(const Call&)> methods = {
        {"/coordination/Register", &Impl::enter},  {"/coordination/Beat", &Impl::beat},
        {"/coordination/Barrier", &Impl::barrier}, {"/coordination/Fail", &Impl::end},
        {"/coordination/Leave", &Impl::leave},     {"/coordination/Put", &Impl::put},
        {"/coordination/Get", &Impl::get},
    };
    const auto found = methods.find(method);
    if (found == methods.end()) fail_to_find_call("[cluster] the coordination leader", method);
    (this->*found->second)(call);
  }

  void enter(const Call& call) {
    const auto request = request_of<proto::RegisterRequest>(call);
    state_.register_task(process(request.task()), request.cluster(), request.process(), request.info(), now(),
                         after(request.wait_ms()), reply_to(call));
  }
  void beat(const Call& call) {
    const auto request = request_of<proto::BeatRequest>(call);
    state_.beat(process(request.task()), request.known_left(), now(), after(request.wait_ms()), reply_to(call));
  }
  void barrier(const Call& call) {
    const auto request = request_of<proto::BarrierRequest>(call);
    state_.barrier(process(request.task()), request.name(), now(), after(request.wait_ms()), reply_to(call));
  }
  void end(const Call& call) {
    const auto request = request_of<proto::FailRequest>(call);
    state_.fail(process(request.task()), request.reason());
    answer(call, proto::Answer());
  }
  void leave(const Call& call) {
    state_.leave(process(request_of<proto::LeaveRequest>(call).task()));
    answer(call, proto::Answer());
  }
  void put(const Call& call) {
    const auto request = request_of<proto::PutRequest>(call);
    state_.put(process(request.task()), request.key(), request.value(), request.if_absent(), reply_to(call));
  }
  void get(const Call& call) {
    const auto request = request_of<proto::GetRequest>(call);
    state_.get(process(request.task()), request.key(), after(request.wait_ms()), reply_to(call));
  }

  CoordinationState state_;
  RpcServer server_;
  std::jthread ticker_;
};

CoordinationServer::CoordinationServer(const ClusterSpec& cluster, const std::string& address,
                                       std::chrono::milliseconds heartbeat_timeout, const JobSecurity& security,
                                       const std::vector<std::string>& further_hosts)
    : impl_(std::make_unique<Impl>(cluster, address, heartbeat_timeout, security, further_hosts)) {}
CoordinationServer::~CoordinationServer() = default;

const CoordinationState& CoordinationServer::state() const {
  return impl_->state();
}
std::shared_ptr<Channel> CoordinationServer::local_channel() {
  return impl_->local_channel();
}

}  // namespace cohort
