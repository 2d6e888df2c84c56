// A task's end of the coordination service, over connections on which messages are lost.
#include "cluster/coordination/client.h"

#include <gtest/gtest.h>

#include "cluster/coordination/server.h"
#include "cluster/free_port.h"
#include "tests/support/proxy.h"

namespace cohort::coordination_client_test {
namespace {

using std::chrono::seconds;
using testing::Proxy;

TEST(CoordinationClient, AFarewellThatIsLostIsSentAgain) {
  const int port = free_port("127.0.0.1");
  const std::string address = "127.0.0.1:" + std::to_string(port);
  const ClusterSpec cluster(std::map<std::string, std::vector<std::string>>{{"worker", {address}}});
  const CoordinationServer server(cluster, address, seconds(600), {});
  Proxy proxy(port);
  CoordinationClient client([&] { return open_channel(proxy.address()); }, {"worker", 0}, "the leader",
                            {.start_timeout = seconds(60), .heartbeat_timeout = seconds(600)});
  (void)client.enter(cluster.to_json());
  EXPECT_FALSE(server.state().deserted());
  proxy.forget_next_connection();
  client.leave(seconds(60));
  EXPECT_TRUE(server.state().deserted());
}

}  // namespace
}  // namespace cohort::coordination_client_test
