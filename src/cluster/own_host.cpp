#include "cluster/own_host.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/fail.h"
#include "rpc/local_end.h"

namespace cohort {

namespace {

constexpr std::chrono::milliseconds kNextLook(200);  // between two looks for a name

std::optional<Address> address_of(const ClusterSpec& cluster, const TaskId& task) {
  return parse_address(cluster.address(task));
}

bool is_name(const std::string& host) {
  in6_addr ignored{};
  return ::inet_pton(AF_INET, host.c_str(), &ignored) != 1 && host.find(':') == std::string::npos;
}

}  // namespace

// Returns the local end of a "connected" datagram socket; connecting one sends nothing.
std::string interface_towards(const Address& peer) {
  const sockaddr_storage own =
      local_end(peer.host, peer.port, SOCK_DGRAM, ::connect, "[cluster] there is no way to " + peer.to_string());
  return numeric(reinterpret_cast<const sockaddr&>(own), sizeof(own));
}

void await_own_name(const ClusterSpec& cluster, const TaskId& task, WaitOptions options) {
  const auto own = address_of(cluster, task);
  if (!own) return;
  options.who = "[cluster] " + task.to_string();
  options.in = "start-up";
  options.pause = kNextLook;
  wait_reporting(options, [&](const Deadline&) -> std::string {
    const std::string reason = why_unresolved(own->host);
    return reason.empty() ? "" : "the address of its own host " + own->host + ": " + reason;
  });
}

void require_no_gap(const ClusterSpec& cluster, const std::string& job) {
  const int count = cluster.num_tasks(job);
  if (count == 0 || cluster.jobs().at(job).rbegin()->first == count - 1) return;
  std::string indices;
  for (const auto& [index, address] : cluster.jobs().at(job)) indices += c10::str(indices.empty() ? "" : ", ", index);
  fail<InvalidArgument>("[cluster] the ", count, " task(s) of job ", job, " have the indices ", indices,
                        ", wanted 0 to ", count - 1, " without a gap: ", cluster.to_json());
}

std::vector<std::string> hosts_beside_loopback(const ClusterSpec& cluster, const TaskId& task) {
  const auto own = address_of(cluster, task);
  const std::string failure = "[cluster] " + task.to_string();
  if (!own || !is_name(own->host) || own->host == "localhost" || !is_loopback(own->host, failure)) return {};
  const std::vector<std::string> here = addresses_here(own->host, failure);
  for (const auto& [job, tasks] : cluster.jobs()) {
    for (const auto& [index, text] : tasks) {
      const auto other = parse_address(text);
      if (!other || other->host == own->host || !why_unresolved(other->host).empty()) continue;
      const std::string towards = interface_towards(*other);
      if (std::find(here.begin(), here.end(), towards) == here.end()) return {towards};
    }
  }
  return {};
}

std::vector<std::string> own_addresses(const ClusterSpec& cluster, const TaskId& task) {
  if (auto beside = hosts_beside_loopback(cluster, task); !beside.empty()) return beside;
  if (const auto own = address_of(cluster, task)) {
    return addresses_here(own->host, "[cluster] " + task.to_string() + " cannot be at " + own->host);
  }
  const auto leader = coordination_leader(cluster);
  const auto address = leader ? address_of(cluster, *leader) : std::nullopt;
  if (!address) fail<InvalidArgument>("[cluster] ", cluster.to_json(), " has no address for its coordination leader");
  return {interface_towards(*address)};
}

std::string this_process() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return c10::str("pid ", ::getpid(), " on ", host.data());
}

}  // namespace cohort
