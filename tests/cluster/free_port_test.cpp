#include "cluster/free_port.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::free_port_test {
namespace {

// The system may give its own to a connection before the caller listens there.
TEST(FreePort, IsNoneThatTheSystemGives) {
  int first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  if (first < 12'000) GTEST_SKIP() << "the system gives nearly all ports, from " << first << " on";
  const std::vector<int> ports = free_ports("127.0.0.1", 20);
  EXPECT_EQ(std::set<int>(ports.begin(), ports.end()).size(), 20U);
  for (const int port : ports) {
    EXPECT_GE(port, 10'000);
    EXPECT_LT(port, first);
  }
}

TEST(FreePort, IsThisMachines) {
  testing::expect_error<Unavailable>([] { (void)free_port("192.0.2.1"); }, "no port can be bound at 192.0.2.1");
}

}  // namespace
}  // namespace cohort::free_port_test
