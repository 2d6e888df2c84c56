#include "wings/etcd/rpc/etcd_client.h"

#include <algorithm>
#include <thread>

#include "base/deadline.h"
#include "base/fail.h"
#include "rpc/address.h"
#include "rpc/channel.h"
#include "rpc/grpc_channel.h"
#include "rpc/local_end.h"
#include "wings/etcd/rpc/etcd_stream.h"

namespace cohort {

namespace {

using std::chrono::milliseconds;
using Code = grpc::StatusCode;

constexpr milliseconds kNextMember(50);  // between a member that does not answer and the next one
constexpr milliseconds kOneMemberAtLeast(500);
constexpr milliseconds kOneMember(2000);  // the longest time of a call at one member, while there are others

// Returns whether another member, or the same one later, may answer. A member gives its own errors no code, such as
// that it cannot reach its leader.
bool may_answer_elsewhere(int code) {
  return code == Code::UNAVAILABLE || code == Code::DEADLINE_EXCEEDED || code == Code::CANCELLED ||
         code == Code::UNKNOWN;
}

SecurityOptions security_of_etcd(const EtcdAddress& address, const SecurityOptions& security, bool allow_insecure) {
  if (address.tls) {
    if (!security.ca_file.empty()) return security;
    fail<InvalidArgument>("[etcd] ", address.shown(),
                          " is to be spoken to over TLS, for which there are no "
                          "certificates (--tls_ca, --tls_cert, --tls_key)");
  }
  for (const std::string& endpoint : address.endpoints) {
    if (allow_insecure || is_loopback(parse_address(endpoint)->host, "[etcd]")) continue;
    fail<FailedPrecondition>("[etcd] ", endpoint,
                             " is on another machine, and etcd:// is not encrypted: use etcds:// "
                             "with certificates (--tls_ca), or allow it (--insecure) in a network that you trust");
  }
  return {};
}

}  // namespace

std::string end_of_prefix(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');
  ++prefix.back();
  return prefix;
}

EtcdClient::EtcdClient(EtcdAddress address, const SecurityOptions& security, bool allow_insecure)
    : address_(std::move(address)), security_(security_of_etcd(address_, security, allow_insecure)) {}

EtcdClient::~EtcdClient() {
  close();
}

EtcdClient::Place EtcdClient::place() {
  const std::lock_guard lock(mutex_);
  if (closed_) fail<Cancelled>("[etcd] ", name(), ": the call was given up");
  if (!channel_) channel_ = open_channel(address_.endpoints[index_], security_);
  return {.index = index_, .channel = channel_};
}

// Goes on to the next member, unless another call has done so. Watches at this member end: they may never hear of
// anything again.
void EtcdClient::leave(std::size_t index) {
  const std::lock_guard lock(mutex_);
  if (index != index_) return;
  index_ = (index_ + 1) % address_.endpoints.size();
  channel_ = nullptr;
  for (EtcdStream* watch : watches_) watch->cancel();
}

bool EtcdClient::note(EtcdStream* stream) {
  const std::lock_guard lock(mutex_);
  streams_.insert(stream);
  return !closed_;
}

void EtcdClient::forget(EtcdStream* stream) {
  const std::lock_guard lock(mutex_);
  streams_.erase(stream);
  watches_.erase(stream);
}

void EtcdClient::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (EtcdStream* stream : streams_) stream->cancel();
}

EtcdClient::End EtcdClient::attempt(const Place& place, const std::string& method,
                                    const google::protobuf::MessageLite& request, google::protobuf::MessageLite& answer,
                                    milliseconds limit) {
  bool answered = false;
  const bool authenticates = method == "/etcdserverpb.Auth/Authenticate";
  EtcdStream stream(place.channel, {.method = method, .token = authenticates ? "" : token(limit), .limit = limit},
                    request, [&](const grpc::ByteBuffer& bytes) { answered = read_message(bytes, answer); });
  if (!note(&stream)) stream.cancel();
  const grpc::Status status = stream.wait();
  forget(&stream);
  if (!status.ok()) return {.code = status.error_code(), .message = status.error_message()};
  if (!answered) return {.code = Code::INTERNAL, .message = "there is no answer that can be read"};
  return {};
}

// Returns the token of the user, which is asked for once and again when etcd has forgotten it.
std::string EtcdClient::token(milliseconds limit) {
  if (address_.user.empty()) return "";
  {
    const std::lock_guard lock(mutex_);
    if (!token_.empty()) return token_;
  }
  etcd::AuthenticateRequest request;
  request.set_name(address_.user);
  request.set_password(address_.password);
  etcd::AuthenticateResponse answer;
  call("/etcdserverpb.Auth/Authenticate", request, answer, limit);
  const std::lock_guard lock(mutex_);
  token_ = answer.token();
  return token_;
}

void EtcdClient::raise(const End& end, const std::string& method) const {
  const std::string who = c10::str("[etcd] ", name());
  switch (end.code) {
    case Code::UNAVAILABLE:
      fail<Unavailable>(who, " cannot be reached: ", end.message);
    case Code::DEADLINE_EXCEEDED:
      fail<DeadlineExceeded>(who, " did not answer in time");
    case Code::CANCELLED:
      fail<Cancelled>(who, ": the call was given up");
    case Code::INVALID_ARGUMENT:
      fail<InvalidArgument>(who, " does not take ", method, ": ", end.message);
    case Code::RESOURCE_EXHAUSTED:
      if (end.message.find("larger than max") == std::string::npos) break;
      fail<InvalidArgument>(who, " does not take ", method, ", which is too long: ", end.message);
    case Code::NOT_FOUND:
      fail<NotFound>(who, ": ", end.message);
    case Code::UNKNOWN:
      fail<Unavailable>(who, " failed in ", method, ": ", end.message);
    case Code::INTERNAL:
      fail<Internal>(who, " failed in ", method, ": ", end.message);
    default:
      break;
  }
  fail<FailedPrecondition>(who, " refuses ", method, ": ", end.message);
}

void EtcdClient::call(const std::string& method, const google::protobuf::MessageLite& request,
                      google::protobuf::MessageLite& answer, milliseconds limit) {
  const Deadline deadline(limit);
  const bool has_others = address_.endpoints.size() > 1;
  const milliseconds one = has_others ? std::clamp(limit / 2, kOneMemberAtLeast, kOneMember) : limit;
  bool renewed = false;
  End why;  // the last end that says more than that the time has passed
  for (;;) {
    const Place member = place();
    const End end = attempt(member, method, request, answer, std::max(std::min(one, deadline.left()), milliseconds(1)));
    if (end.code == Code::OK) return;
    {
      const std::lock_guard lock(mutex_);
      if (closed_) raise({.code = Code::CANCELLED, .message = ""}, method);
      if (end.code == Code::UNAUTHENTICATED && !renewed && !token_.empty()) {
        token_.clear();
        renewed = true;
        continue;
      }
    }
    if (!may_answer_elsewhere(end.code)) raise(end, method);
    leave(member.index);
    if (why.code == Code::OK || end.code != Code::DEADLINE_EXCEEDED) why = end;
    if (deadline.left() <= kNextMember) raise(why, method);
    std::this_thread::sleep_for(kNextMember);
  }
}

etcd::RangeResponse EtcdClient::range(const etcd::RangeRequest& request, milliseconds limit) {
  etcd::RangeResponse answer;
  call("/etcdserverpb.KV/Range", request, answer, limit);
  return answer;
}

etcd::TxnResponse EtcdClient::transact(const etcd::TxnRequest& request, milliseconds limit) {
  etcd::TxnResponse answer;
  call("/etcdserverpb.KV/Txn", request, answer, limit);
  return answer;
}

int64_t EtcdClient::grant(int64_t seconds, milliseconds limit) {
  etcd::LeaseGrantRequest request;
  request.set_ttl(seconds);
  etcd::LeaseGrantResponse answer;
  call("/etcdserverpb.Lease/LeaseGrant", request, answer, limit);
  if (answer.ttl() <= seconds) return answer.id();
  revoke(answer.id(), limit);
  fail<InvalidArgument>("[etcd] ", name(), " grants leases of ", answer.ttl(), " s or more, but a silence of ", seconds,
                        " s is to be the loss of a task (heartbeat_timeout)");
}

void EtcdClient::revoke(int64_t lease, milliseconds limit) {
  etcd::LeaseRevokeRequest request;
  request.set_id(lease);
  etcd::LeaseRevokeResponse answer;
  call("/etcdserverpb.Lease/LeaseRevoke", request, answer, limit);
}

void EtcdClient::keep_alive(int64_t lease, milliseconds limit) {
  etcd::LeaseKeepAliveRequest request;
  request.set_id(lease);
  etcd::LeaseKeepAliveResponse answer;
  call("/etcdserverpb.Lease/LeaseKeepAlive", request, answer, limit);
  if (answer.ttl() <= 0) fail<NotFound>("[etcd] ", name(), ": the lease has ended");
}

void EtcdClient::watch(const etcd::WatchCreateRequest& create,
                       const std::function<void(const etcd::WatchResponse&)>& seen, const std::stop_token& stop) {
  constexpr milliseconds kToken(2000);
  etcd::WatchRequest request;
  *request.mutable_create_request() = create;
  const Place member = place();
  const std::string token_now = token(kToken);
  EtcdStream stream(member.channel, {.method = "/etcdserverpb.Watch/Watch", .token = token_now, .limit = {}}, request,
                    [&](const grpc::ByteBuffer& bytes) {
                      etcd::WatchResponse answer;
                      if (!read_message(bytes, answer)) return;
                      if (answer.canceled()) stream.cancel();  // the revision is no longer kept
                      seen(answer);
                    });
  const bool open = note(&stream);
  bool moved = false;
  {
    const std::lock_guard lock(mutex_);
    watches_.insert(&stream);
    moved = index_ != member.index || channel_ != member.channel;
  }
  if (!open || moved) stream.cancel();
  const std::stop_callback end(stop, [&] { stream.cancel(); });
  const grpc::Status status = stream.wait();
  forget(&stream);
  {
    const std::lock_guard lock(mutex_);
    if (closed_) raise({.code = Code::CANCELLED, .message = ""}, "Watch");
  }
  if (!status.ok() && status.error_code() != Code::CANCELLED) leave(member.index);
}

}  // namespace cohort
