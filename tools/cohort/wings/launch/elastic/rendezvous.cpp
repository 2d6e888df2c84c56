#include "wings/launch/elastic/rendezvous.h"

#include <iostream>
#include <mutex>
#include <thread>

#include "base/fail.h"
#include "cluster/beat_plan.h"
#include "rpc/calls.h"
#include "rpc/probe.h"
#include "rpc/server.h"

namespace cohort::cli {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPatience = AgentRosterOptions().silence;
constexpr int kUnfinished = 1;
constexpr const char* kExchange = "/rendezvous/Exchange";

class RemoteLeader final : public Leader {
 public:
  RemoteLeader(const std::string& address, const SecurityOptions& security)
      : leader_("the leader at " + address, address, security) {}

  std::optional<Order> exchange(const Report& report) override {
    try {
      const BeatPlan::Attempt attempt = plan_.next(Clock::now());
      const Order order = message_in<Order>(leader_.call(kExchange, make_frame(report), attempt.limit, attempt.again));
      plan_.heard(Clock::now());
      return order;
    } catch (const Error&) {
      plan_.failed();
      if (plan_.lost(Clock::now())) plan_ = BeatPlan(kPatience, Clock::now());
      return std::nullopt;  // the agent decides how long it goes on
    }
  }

 private:
  RpcProbe leader_;
  BeatPlan plan_{kPatience, Clock::now()};
};

}  // namespace

class RendezvousServer::Impl {
 public:
  Impl(const std::string& address, const AgentRosterOptions& options, const JobSecurity& security)
      : silence_(options.silence),
        roster_(options, Clock::now()),
        server_(address,
                {.name = "the launcher",
                 .security = security.security,
                 .threads = 1,
                 .allow_insecure = security.allow_insecure},
                [this](const std::string& method, const std::shared_ptr<RpcCall>& call) { handle(method, call); }) {}

  Order exchange(const Report& report) {
    const std::lock_guard lock(mutex_);
    Order order = roster_.exchange(report, Clock::now());
    for (const std::string& news : roster_.take_news()) std::cerr << "[launch] " + news + "\n";
    return order;
  }

  void finish(int code) {
    const std::lock_guard lock(mutex_);
    roster_.finish(code);
  }

  void linger() {
    const auto end = Clock::now() + 2 * silence_;
    while (Clock::now() < end && !heard_by_all()) std::this_thread::sleep_for(milliseconds(20));
  }

 private:
  void handle(const std::string& method, const std::shared_ptr<RpcCall>& call) {
    if (method != kExchange) fail_to_find_call("[launch] the leader", method);
    const auto report = request_of<Report>(call);
    if (const auto wrong = misfit(report)) fail<InvalidArgument>("[launch] a report does not fit: ", *wrong);
    answer(call, exchange(report));
  }

  bool heard_by_all() {
    const std::lock_guard lock(mutex_);
    return roster_.heard_by_all(Clock::now());
  }

  milliseconds silence_;
  std::mutex mutex_;
  AgentRoster roster_;
  RpcServer server_;
};

RendezvousServer::RendezvousServer(const std::string& address, const AgentRosterOptions& options,
                                   const JobSecurity& security)
    : impl_(std::make_unique<Impl>(address, options, security)) {}
RendezvousServer::~RendezvousServer() {
  impl_->finish(kUnfinished);  // has no effect if finish() was called before
  impl_->linger();
}
std::optional<Order> RendezvousServer::exchange(const Report& report) {
  return impl_->exchange(report);
}
void RendezvousServer::finish(int code) {
  impl_->finish(code);
}

std::unique_ptr<Leader> connect_to_rendezvous(const std::string& address, const SecurityOptions& security) {
  return std::make_unique<RemoteLeader>(address, security);
}

}  // namespace cohort::cli
