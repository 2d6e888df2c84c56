#include "cluster/free_port.h"

#include <netinet/in.h>
#include <algorithm>

#include "rpc/local_end.h"

namespace cohort {

int free_port(const std::string& host) {
  const sockaddr_storage bound = local_end(host, 0, SOCK_STREAM, ::bind, "[cluster] no port can be bound at " + host);
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&bound);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&bound);
  return ntohs(bound.ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port);
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
