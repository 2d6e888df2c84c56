// What a server bears of its callers, and what both ends do about connections that are silent.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "cohort/error.h"
#include "rpc/calls.h"
#include "tests/support/descriptors.h"

namespace cohort::limits_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string local(int port) {
  return "127.0.0.1:" + std::to_string(port);
}

// Keeps the calls of "/keep", and answers others.
class Keeper {
 public:
  std::size_t kept() {
    const std::lock_guard lock(mutex_);
    return kept_.size();
  }
  bool wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, seconds(30), [&] { return kept_.size() >= count; });
  }
  void answer_all() {
    std::vector<std::shared_ptr<RpcCall>> calls;
    {
      const std::lock_guard lock(mutex_);
      calls.swap(kept_);
    }
    for (const auto& call : calls) answer(call);
  }
  int port() const { return server_.port(); }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::shared_ptr<RpcCall>> kept_;
  RpcServer server_{"127.0.0.1:0", {}, [this](const std::string& method, const std::shared_ptr<RpcCall>& call) {
                      if (method != "/keep") return answer(call);
                      const std::lock_guard lock(mutex_);
                      kept_.push_back(call);
                      came_.notify_all();
                    }};
};

int connect_to(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (socket < 0 || ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return -1;
  const timeval limit{.tv_sec = 10, .tv_usec = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  return socket;
}

// The first one: descriptors that connections of other tests give back late would let the caller in.
TEST(Limits, WithoutDescriptorsCallersAreTurnedAwayAndTheServerComesBack) {
  Keeper server;
  RpcClient client("the server", local(server.port()));
  ask(client, "/answer", rpc::Empty(), seconds(10));
  {
    testing::NoDescriptors none;
    none.give_one();
    const int socket = connect_to(server.port());  // takes the last one
    ASSERT_GE(socket, 0);
    const double before = testing::processor_seconds();
    char byte = 0;
    EXPECT_EQ(::recv(socket, &byte, 1, 0), 0) << "the caller waits in vain";
    std::this_thread::sleep_for(milliseconds(300));
    EXPECT_LT(testing::processor_seconds() - before, 0.2) << "the server asks again and again";
    ask(client, "/answer", rpc::Empty(), seconds(10));  // connections that are there go on
    ::close(socket);
  }
  RpcClient later("the server", local(server.port()));
  ask(later, "/answer", rpc::Empty(), seconds(10));
}

TEST(Limits, AConnectionHasSoManyCallsUnderWayAndTheRestWaits) {
  constexpr std::size_t kMost = 1024;
  constexpr std::size_t kMore = 50;
  Keeper server;
  RpcClient client("the server", local(server.port()));
  std::vector<std::future<Frame>> answers;
  for (std::size_t i = 0; i < kMost + kMore; ++i) {
    answers.push_back(client.call("/keep", make_frame(rpc::Empty()), seconds(60)));
  }
  ASSERT_TRUE(server.wait_for(kMost));
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(server.kept(), kMost);
  RpcClient another("the server", local(server.port()));
  ask(another, "/answer", rpc::Empty(), seconds(10));  // other connections are not concerned
  server.answer_all();
  ASSERT_TRUE(server.wait_for(kMore));
  server.answer_all();
  for (auto& answer : answers) (void)answer.get();
}

TEST(Limits, AMessageThatIsTooLongIsRefusedByTheServerToo) {
  Keeper server;
  grpc::GenericStub stub(grpc::CreateChannel(local(server.port()), grpc::InsecureChannelCredentials()));
  const auto status_of = [&](std::size_t bytes) {
    const grpc::Slice slice(std::string(bytes, 'x'));
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer reply;
    grpc::ClientContext context;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, "/answer", {}, &request, &reply, [&](const grpc::Status& s) { done.set_value(s); });
    return done.get_future().get().error_code();
  };
  EXPECT_EQ(status_of(kLongestFrame + 1), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status_of(1 << 20), grpc::StatusCode::OK) << "the server is unharmed";
}

// Returns TCP's user timeouts of the connections to the port that this process has, and of those that it accepted.
std::vector<int> user_timeouts(int port) {
  std::vector<int> found;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in6 own{};  // gRPC has sockets of IPv6 for addresses of IPv4, too; both have the port at the same place
    sockaddr_in6 other{};
    socklen_t length = sizeof(own);
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0) continue;
    if (own.sin6_family != AF_INET && own.sin6_family != AF_INET6) continue;
    length = sizeof(other);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &length) != 0) continue;
    if (ntohs(own.sin6_port) != port && ntohs(other.sin6_port) != port) continue;
    int timeout = 0;
    length = sizeof(timeout);
    ::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, &length);
    found.push_back(timeout);
  }
  return found;
}

TEST(Limits, BothEndsGiveUpAConnectionThatIsSilent) {
  Keeper server;
  RpcClient client("the server", local(server.port()));
  ask(client, "/answer", rpc::Empty(), seconds(10));
  const int wanted = static_cast<int>(milliseconds(kKeepaliveTimeout).count());
  EXPECT_EQ(user_timeouts(server.port()), (std::vector<int>{wanted, wanted}));
}

}  // namespace
}  // namespace cohort::limits_test
