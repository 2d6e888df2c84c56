#include "cluster/free_port.h"

#include <netinet/in.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "cohort/error.h"
#include "rpc/local_end.h"

namespace cohort {

namespace {

int port_at(const std::string& host, int port) {
  const sockaddr_storage bound =
      local_end(host, port, SOCK_STREAM, ::bind, "[cluster] no port can be bound at " + host);
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&bound);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&bound);
  return ntohs(bound.ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port);
}

// Returns the first of the ports that the system gives to connections, and to who listens anywhere; 0: it does not say.
int first_given() {
  int first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  return first;
}

}  // namespace

int free_port(const std::string& host) {
  constexpr int kFirst = 10'000;  // those below belong to services
  constexpr int kEnough = 2'000;
  constexpr int kTries = 100;
  const int given = port_at(host, 0);
  const int end = first_given();
  if (end < kFirst + kEnough) return given;
  std::random_device random;
  std::uniform_int_distribution<int> ports(kFirst, end - 1);
  for (int i = 0; i < kTries; ++i) {
    try {
      return port_at(host, ports(random));
    } catch (const Unavailable&) {  // somebody has it
    }
  }
  return given;
}

std::vector<int> free_ports(const std::string& host, int count) {
  std::vector<int> ports;
  while (static_cast<int>(ports.size()) < count) {
    const int port = free_port(host);
    if (std::find(ports.begin(), ports.end(), port) == ports.end()) ports.push_back(port);
  }
  return ports;
}

}  // namespace cohort
