#include "launch/elastic/rendezvous.h"

#include <grpcpp/grpcpp.h>

#include <iostream>
#include <mutex>
#include <thread>

#include "base/fail.h"
#include "rendezvous.grpc.pb.h"

namespace cohort::cli {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kCall = std::chrono::seconds(1);
constexpr int kUnfinished = 1;

class RemoteLeader final : public Leader {
 public:
  explicit RemoteLeader(const std::string& address)
      : stub_(rendezvous::Rendezvous::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {}

  std::optional<Order> exchange(const Report& report) override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCall);
    Order order;
    if (!stub_->Exchange(&context, report, &order).ok()) return std::nullopt;
    return order;
  }

 private:
  std::unique_ptr<rendezvous::Rendezvous::Stub> stub_;
};

}  // namespace

class RendezvousServer::Impl final : public rendezvous::Rendezvous::Service {
 public:
  Impl(const std::string& address, const RosterOptions& options)
      : silence_(options.silence), roster_(options, Clock::now()) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (!server_ || port == 0) {
      fail<Unavailable>("[launch] cannot listen on ", address, ": it is in use or not an address of this machine");
    }
  }

  grpc::Status Exchange(grpc::ServerContext* /*context*/, const Report* report, Order* order) override {
    if (const auto wrong = misfit(*report)) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "[launch] a report does not fit: " + *wrong};
    }
    *order = exchange(*report);
    return grpc::Status::OK;
  }

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
    server_->Shutdown(std::chrono::system_clock::now() + kCall);
  }

 private:
  bool heard_by_all() {
    const std::lock_guard lock(mutex_);
    return roster_.heard_by_all(Clock::now());
  }

  milliseconds silence_;
  std::mutex mutex_;
  Roster roster_;
  std::unique_ptr<grpc::Server> server_;
};

RendezvousServer::RendezvousServer(const std::string& address, const RosterOptions& options)
    : impl_(std::make_unique<Impl>(address, options)) {}
RendezvousServer::~RendezvousServer() {
  impl_->finish(kUnfinished);  // unless it was said before
  impl_->linger();
}
std::optional<Order> RendezvousServer::exchange(const Report& report) {
  return impl_->exchange(report);
}
void RendezvousServer::finish(int code) {
  impl_->finish(code);
}

std::unique_ptr<Leader> connect_to_rendezvous(const std::string& address) {
  return std::make_unique<RemoteLeader>(address);
}

}  // namespace cohort::cli
