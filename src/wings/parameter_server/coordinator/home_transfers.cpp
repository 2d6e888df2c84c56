#include "wings/parameter_server/coordinator/home_transfers.h"

#include <algorithm>

#include "base/fail.h"
#include "rpc/calls.h"
#include "wings/parameter_server/coordinator/server_watch.h"

namespace cohort {

namespace {

namespace proto = parameter_server;

constexpr std::chrono::milliseconds kCopyWait(500);  // for which a server holds the question how far a copy is

}  // namespace

void HomeTransfers::set_source(std::shared_ptr<const SavedVariables> saved, int64_t next_closure) {
  require_fit(*catalog_, *saved);
  const std::lock_guard lock(mutex_);
  source_ = std::move(saved);
  source_closure_ = next_closure;
}

int64_t HomeTransfers::source_closure() const {
  const std::lock_guard lock(mutex_);
  return source_closure_;
}

int64_t HomeTransfers::fill(int home, int server, proto::Order order) {
  std::shared_ptr<const SavedVariables> source;
  int64_t next_closure = 0;
  {
    const std::lock_guard lock(mutex_);
    source = source_;
    next_closure = source_closure_;
  }
  if (!source) fail<FailedPrecondition>("[parameter server] nothing was set to begin with");
  order.set_serial(++fills_);
  for (const std::size_t shard : catalog_->shards_at(home)) {
    install_shard(client_, *catalog_, {.shard = shard, .server = server, .order = order}, *source, next_closure,
                  options_.call_timeout);
  }
  return next_closure;
}

bool HomeTransfers::copy(const RosterAction& action, int primary, const proto::Order& order) {
  if (copy_ != action) {
    copy_ = action;
    copied_ = 0;
    copy_until_.emplace(options_.call_timeout);
  }
  proto::CopyRequest request;
  request.set_home(action.home);
  request.set_term(action.term);
  request.set_wait_ms(static_cast<uint32_t>(std::min(options_.heartbeat_timeout, kCopyWait).count()));
  *request.mutable_order() = order;
  const auto reply = message_in<proto::CopyReply>(
      client_.call(primary, "/ps/Copy", make_frame(request), options_.heartbeat_timeout + kCopyWait));
  if (reply.done()) return true;
  if (reply.bytes() != copied_) {
    copied_ = reply.bytes();
    copy_until_.emplace(options_.call_timeout);
  }
  if (!copy_until_->passed()) return false;
  copy_ = {};
  fail<DeadlineExceeded>("[parameter server] ", KnownServers::name(primary), " has not sent anything to ",
                         KnownServers::name(action.server), " for ", to_text(options_.call_timeout), ", after ",
                         copied_, " bytes of home ", action.home);
}

}  // namespace cohort
