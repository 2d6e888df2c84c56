#include "rpc/probe.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "cohort/error.h"
#include "rpc/calls.h"
#include "rpc/server.h"
#include "tests/support/errors.h"
#include "tests/support/proxy.h"

namespace cohort::probe_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::expect_error;
using testing::Proxy;

const Frame& question() {
  static const Frame empty = make_frame(rpc::Empty());
  return empty;
}

// The connection is there, but nothing comes through, as after an outage for which TCP waits. The call after the one
// that has failed is answered, over a new connection.
TEST(RpcProbe, ACallAfterASilentConnectionGoesOverANewOne) {
  const RpcServer server("127.0.0.1:0", {},
                         [](const std::string&, const std::shared_ptr<RpcCall>& call) { answer(call); });
  Proxy proxy(server.port());
  RpcProbe probe("the server", proxy.address());
  (void)probe.call("/beat", question(), seconds(20));
  (void)probe.call("/beat", question(), seconds(20));
  EXPECT_EQ(proxy.connections(), 1) << "no more than are needed";
  proxy.forget_connections();
  expect_error<DeadlineExceeded>([&] { (void)probe.call("/beat", question(), milliseconds(300)); },
                                 "the server did not answer in time");
  EXPECT_EQ(proxy.connections(), 1) << "the call was not to be sent again";
  (void)probe.call("/beat", question(), seconds(20));
  const int connections = proxy.connections();
  EXPECT_GE(connections, 2);
  (void)probe.call("/beat", question(), seconds(20));
  EXPECT_EQ(proxy.connections(), connections) << "the connection that works is kept";
}

// What was sent is lost. It is sent again before its time has passed, and the connection that works is kept.
TEST(RpcProbe, ACallThatIsLostIsSentAgainOverANewConnection) {
  const RpcServer server("127.0.0.1:0", {},
                         [](const std::string&, const std::shared_ptr<RpcCall>& call) { answer(call); });
  Proxy proxy(server.port());
  RpcProbe probe("the server", proxy.address());
  (void)probe.call("/beat", question(), seconds(60));
  proxy.forget_connections();
  (void)probe.call("/beat", question(), seconds(60), milliseconds(200));
  const int connections = proxy.connections();
  EXPECT_GE(connections, 2);
  (void)probe.call("/beat", question(), seconds(60));
  EXPECT_EQ(proxy.connections(), connections);
}

// A server that is slow answers the first message, when further ones have come.
TEST(RpcProbe, AnAnswerToTheFirstMessageCountsToo) {
  std::mutex mutex;
  std::vector<std::shared_ptr<RpcCall>> came;
  const RpcServer server("127.0.0.1:0", {}, [&](const std::string&, const std::shared_ptr<RpcCall>& call) {
    const std::lock_guard lock(mutex);
    came.push_back(call);
    if (came.size() == 3) answer(came.front());
  });
  Proxy proxy(server.port());
  RpcProbe probe("the server", proxy.address());
  (void)probe.call("/beat", question(), seconds(60), milliseconds(500));
  const int connections = proxy.connections();
  const std::lock_guard lock(mutex);
  EXPECT_GE(came.size(), 3U);
  EXPECT_GE(connections, 3);
  came.clear();  // the server waits for them
}

// An error of the other end's is an answer: the call is not made again.
TEST(RpcProbe, AnErrorOfTheServersIsAnAnswer) {
  std::atomic<int> calls = 0;
  const RpcServer server("127.0.0.1:0", {}, [&](const std::string&, const std::shared_ptr<RpcCall>&) {
    ++calls;
    throw FailedPrecondition("[test] not now");
  });
  RpcProbe probe("the server", "127.0.0.1:" + std::to_string(server.port()));
  expect_error<FailedPrecondition>([&] { (void)probe.call("/beat", question(), seconds(60), seconds(20)); },
                                   "[test] not now");
  EXPECT_EQ(calls, 1);
}

TEST(RpcProbe, CallsEndWhenItIsClosed) {
  std::promise<std::shared_ptr<RpcCall>> came;
  const RpcServer server("127.0.0.1:0", {.threads = 1},
                         [&](const std::string&, const std::shared_ptr<RpcCall>& call) { came.set_value(call); });
  RpcProbe probe("the server", "127.0.0.1:" + std::to_string(server.port()));
  std::jthread closer([&] {
    const auto kept = came.get_future().get();
    probe.close();
  });
  expect_error<Cancelled>([&] { (void)probe.call("/beat", question(), seconds(20)); }, "was given up");
  closer.join();
  expect_error<Cancelled>([&] { (void)probe.call("/beat", question(), seconds(20)); }, "no call of the server is made");
}

}  // namespace
}  // namespace cohort::probe_test
