#include "cluster/own_host.h"

#include <netdb.h>
#include <unistd.h>

#include <array>

#include "base/fail.h"
#include "rpc/local_end.h"

namespace cohort {

// Returns the local end of a "connected" datagram socket; connecting one sends nothing.
std::string interface_towards(const Address& peer) {
  const sockaddr_storage own =
      local_end(peer.host, peer.port, SOCK_DGRAM, ::connect, "[cluster] there is no way to " + peer.to_string());
  std::array<char, NI_MAXHOST> host{};
  getnameinfo(reinterpret_cast<const sockaddr*>(&own), sizeof(own), host.data(), host.size(), nullptr, 0,
              NI_NUMERICHOST);
  return host.data();
}

std::string own_host(const ClusterSpec& cluster, const TaskId& task) {
  const auto address_of = [&](const TaskId& which) { return parse_address(cluster.address(which)); };
  if (const auto own = address_of(task)) return own->host;
  const auto leader = coordination_leader(cluster);
  const auto address = leader ? address_of(*leader) : std::nullopt;
  if (!address) fail<InvalidArgument>("[cluster] ", cluster.to_json(), " has no address for its coordination leader");
  return interface_towards(*address);
}

std::string this_process() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return c10::str("pid ", ::getpid(), " on ", host.data());
}

}  // namespace cohort
