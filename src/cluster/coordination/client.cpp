#include "cluster/coordination/client.h"

#include <thread>

#include "base/draw.h"
#include "base/fail.h"
#include "base/log.h"
#include "cluster/own_host.h"
#include "rpc/security.h"

namespace cohort {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
namespace proto = coordination;

// How long the leader may hold a call that waits (also a sign of life before the heartbeats), and what a call may take.
constexpr milliseconds kSlice = seconds(1);
constexpr milliseconds kCall = seconds(10);

std::string join(const google::protobuf::RepeatedPtrField<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

uint32_t in_ms(milliseconds time) {
  return static_cast<uint32_t>(time.count());
}

// Whether to call again: the leader is not there yet, was slow, still ends a group before this one, or just ended it.
bool passing(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::CANCELLED:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::shared_ptr<grpc::Channel> connect_to_leader(const std::string& address, const SecurityOptions& security) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  if (const std::string name = tls_name(security); !name.empty()) arguments.SetSslTargetNameOverride(name);
  return grpc::CreateCustomChannel(address, channel_credentials(security), arguments);
}

CoordinationClient::CoordinationClient(std::shared_ptr<grpc::Channel> channel, const TaskId& task, std::string leader,
                                       const MembershipOptions& options)
    : stub_(proto::Coordination::NewStub(std::move(channel))),
      task_(task),
      incarnation_(draw_number()),
      leader_(std::move(leader)),
      options_(options) {}

proto::Task CoordinationClient::self() const {
  proto::Task task;
  task.set_type(task_.type);
  task.set_index(task_.index);
  task.set_incarnation(incarnation_);
  return task;
}

void CoordinationClient::raise(const std::string& what, const grpc::Status& status) const {
  const std::string& reason = status.error_message();
  if (status.error_code() == grpc::StatusCode::ABORTED) cohort::fail<Unavailable>("[cluster] ", what, ": ", reason);
  if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION) {
    cohort::fail<FailedPrecondition>("[cluster] ", what, ": ", reason);
  }
  cohort::fail<Unavailable>("[cluster] ", what, ": ", task_.to_string(), " cannot reach the coordination leader ",
                            leader_, ": ", reason);
}

template <typename Call>
grpc::Status CoordinationClient::attempt(milliseconds limit, bool wait_for_ready, const Call& call) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + limit);
  context.set_wait_for_ready(wait_for_ready);
  std::unique_lock lock(mutex_);
  if (given_up_) return {grpc::StatusCode::ABORTED, *given_up_};
  under_way_.insert(&context);
  lock.unlock();
  grpc::Status status = call(context);
  lock.lock();
  under_way_.erase(&context);
  if (given_up_ && !status.ok()) return {grpc::StatusCode::ABORTED, *given_up_};
  return status;
}

void CoordinationClient::give_up(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!given_up_) given_up_ = reason;
  for (grpc::ClientContext* context : under_way_) context->TryCancel();
}

template <typename Call>
void CoordinationClient::once(const std::string& what, const Call& call) {
  const grpc::Status status = attempt(kCall, /*wait_for_ready=*/true, call);
  if (!status.ok()) raise(what, status);
}

// Calls step(context, slice, missing) until it says that it is complete.
template <typename Step>
void CoordinationClient::until_complete(const std::string& what, milliseconds timeout, const Step& step) {
  const Deadline deadline(timeout);
  const auto begin = Deadline::Clock::now();
  auto report = begin + options_.report_interval;
  std::string missing = "the coordination leader, " + leader_;
  for (;;) {
    const milliseconds slice =
        std::min({kSlice, options_.heartbeat_timeout / 3, options_.report_interval, deadline.left()});
    bool complete = false;
    const grpc::Status status = attempt(slice + seconds(1), /*wait_for_ready=*/true, [&](grpc::ClientContext& context) {
      return step(context, in_ms(slice), complete, missing);
    });
    if (status.ok() && complete) return;
    if (!status.ok() && !passing(status)) raise(what, status);
    if (status.error_code() == grpc::StatusCode::ALREADY_EXISTS) {
      missing = status.error_message() + " at " + leader_;
      std::this_thread::sleep_for(milliseconds(50));
    }
    if (deadline.passed()) {
      cohort::fail<DeadlineExceeded>("[cluster] ", task_.to_string(), " waited ", to_text(timeout), " in ", what,
                                     " for ", missing);
    }
    if (Deadline::Clock::now() < report) continue;
    report = Deadline::Clock::now() + options_.report_interval;
    const auto so_far = std::chrono::duration_cast<seconds>(Deadline::Clock::now() - begin);
    log().warn("[cluster] {} waits in {} for {} ({} s of {})", task_.to_string(), what, missing, so_far.count(),
               to_text(timeout));
  }
}

std::vector<std::string> CoordinationClient::enter(const std::string& cluster) {
  proto::RegisterRequest request;
  *request.mutable_task() = self();
  request.set_cluster(cluster);
  request.set_process(this_process());
  request.set_info(options_.info);
  proto::RegisterReply reply;
  until_complete("start-up", options_.start_timeout,
                 [&](grpc::ClientContext& context, uint32_t slice, bool& complete, std::string& missing) {
                   request.set_wait_ms(slice);
                   grpc::Status status = stub_->Register(&context, request, &reply);
                   complete = reply.complete();
                   if (status.ok()) missing = join(reply.missing());
                   return status;
                 });
  return {reply.info().begin(), reply.info().end()};
}

void CoordinationClient::barrier(const std::string& name, milliseconds timeout) {
  proto::BarrierRequest request;
  *request.mutable_task() = self();
  request.set_name(name);
  until_complete("the barrier " + name, timeout,
                 [&](grpc::ClientContext& context, uint32_t slice, bool& complete, std::string& missing) {
                   request.set_wait_ms(slice);
                   proto::BarrierReply reply;
                   grpc::Status status = stub_->Barrier(&context, request, &reply);
                   complete = reply.complete();
                   if (status.ok()) missing = join(reply.missing());
                   return status;
                 });
}

std::string CoordinationClient::get(const std::string& key, milliseconds timeout) {
  proto::GetRequest request;
  *request.mutable_task() = self();
  request.set_key(key);
  proto::GetReply reply;
  until_complete("get", timeout,
                 [&](grpc::ClientContext& context, uint32_t slice, bool& complete, std::string& missing) {
                   request.set_wait_ms(slice);
                   grpc::Status status = stub_->Get(&context, request, &reply);
                   complete = reply.found();
                   if (status.ok()) missing = "the key " + key;
                   return status;
                 });
  return reply.value();
}

std::optional<std::string> CoordinationClient::try_get(const std::string& key) {
  proto::GetRequest request;
  *request.mutable_task() = self();
  request.set_key(key);
  proto::GetReply reply;
  once("get", [&](grpc::ClientContext& context) { return stub_->Get(&context, request, &reply); });
  return reply.found() ? std::optional(reply.value()) : std::nullopt;
}

std::string CoordinationClient::put(const std::string& key, const std::string& value, bool if_absent) {
  proto::PutRequest request;
  *request.mutable_task() = self();
  request.set_key(key);
  request.set_value(value);
  request.set_if_absent(if_absent);
  proto::PutReply reply;
  once("put", [&](grpc::ClientContext& context) { return stub_->Put(&context, request, &reply); });
  return reply.value();
}

void CoordinationClient::fail(const std::string& reason) {
  proto::FailRequest request;
  *request.mutable_task() = self();
  request.set_reason(reason);
  proto::Empty reply;
  const grpc::Status status = attempt(kCall, /*wait_for_ready=*/true, [&](grpc::ClientContext& context) {
    return stub_->Fail(&context, request, &reply);
  });
  // Aborted: the group has failed, by this very call or before it.
  if (!status.ok() && status.error_code() != grpc::StatusCode::ABORTED) raise("fail", status);
}

void CoordinationClient::leave() {
  proto::LeaveRequest request;
  *request.mutable_task() = self();
  proto::Empty reply;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(1));
  (void)stub_->Leave(&context, request, &reply);  // nobody to tell it to is no error here
}

grpc::Status CoordinationClient::beat(grpc::ClientContext& context, std::size_t known_left, milliseconds wait,
                                      milliseconds limit, std::vector<std::string>& left) {
  proto::BeatRequest request;
  *request.mutable_task() = self();
  request.set_wait_ms(in_ms(wait));
  request.set_known_left(static_cast<uint32_t>(known_left));
  proto::BeatReply reply;
  context.set_deadline(std::chrono::system_clock::now() + limit);
  grpc::Status status = stub_->Beat(&context, request, &reply);
  if (status.ok()) left.assign(reply.left().begin(), reply.left().end());
  return status;
}

}  // namespace cohort
