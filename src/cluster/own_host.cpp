#include "cluster/own_host.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/fail.h"
#include "cluster/address.h"

namespace cohort {

namespace {

// The local end of a datagram socket that is "connected", which sends nothing.
std::string interface_towards(const Address& peer) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(peer.host.c_str(), std::to_string(peer.port).c_str(), &hints, &found); error != 0) {
    fail<Unavailable>("[cluster] the host ", peer.host, " cannot be resolved: ", gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> address(found, freeaddrinfo);
  const int socket = ::socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  const bool ok = socket >= 0 && ::connect(socket, address->ai_addr, address->ai_addrlen) == 0 &&
                  ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0;
  const int code = errno;
  if (socket >= 0) ::close(socket);
  if (!ok) fail<Unavailable>("[cluster] there is no way to ", peer.to_string(), ": ", std::strerror(code));
  std::array<char, NI_MAXHOST> host{};
  getnameinfo(reinterpret_cast<sockaddr*>(&own), length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return host.data();
}

}  // namespace

std::string own_host(const ClusterSpec& cluster, const TaskId& task) {
  const auto address_of = [&](const TaskId& which) { return parse_address(cluster.address(which)); };
  if (const auto own = address_of(task)) return own->host;
  const auto leader = coordination_leader(cluster);
  const auto address = leader ? address_of(*leader) : std::nullopt;
  if (!address) fail<InvalidArgument>("[cluster] ", cluster.to_json(), " has no address for its coordination leader");
  return interface_towards(*address);
}

}  // namespace cohort
