#include "wings/xla/cluster/tpu_hosts.h"

#include <set>

#include "base/fail.h"
#include "base/log.h"
#include "cluster/environment.h"
#include "rpc/address.h"

namespace cohort {

namespace {

constexpr const char* kMetadata = "http://metadata.google.internal/computeMetadata/v1/instance/attributes/";

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

[[noreturn]] void malformed(const std::string& name, const std::string& text, const std::string& wanted) {
  fail<InvalidArgument>("[cluster] tpu: ", name, " is \"", text, "\", wanted ", wanted);
}

// Returns the bounds that the first of these variables has which is set: the sizes of a box, "2,2,1".
std::optional<TpuBounds> bounds_of(const Environment& variables, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const std::optional<std::string> text = variable(variables, name);
    if (!text) continue;
    const std::vector<std::string> sides = split(*text, ',');
    int64_t product = 1;
    for (const std::string& side : sides) {
      const std::optional<int> size = parse_int(side);
      if (!size || *size < 1 || sides.size() != 3 || (product *= *size) > 1'000'000) {
        malformed(name, *text, "three numbers of 1 or more, such as 2,2,1");
      }
    }
    return TpuBounds{.variable = name, .text = *text, .count = static_cast<int>(product)};
  }
  return std::nullopt;
}

// Returns the hosts of "host:port,host:port".
std::vector<std::string> hosts_of_addresses(const std::string& name, const std::string& text) {
  std::vector<std::string> hosts;
  std::set<std::string> seen;
  for (const std::string& part : split(text, ',')) {
    const std::optional<Address> address = parse_address(part);
    if (!address) malformed(name, text, "addresses such as host:8476,host:8477; \"" + part + "\" is none");
    if (!seen.insert(address->to_string()).second) malformed(name, text, "each address once; " + part + " is twice");
    hosts.push_back(address->host);
  }
  return hosts;
}

std::vector<std::string> hosts_of_names(const std::string& name, const std::string& text) {
  std::vector<std::string> hosts;
  std::set<std::string> seen;
  for (const std::string& host : split(text, ',')) {
    if (host.empty()) malformed(name, text, "names of hosts between commas");
    if (!seen.insert(host).second) malformed(name, text, "each host once; " + host + " is twice");
    hosts.push_back(host);
  }
  return hosts;
}

// Returns the number of this process by the first of these variables that is set.
int process_of(const Environment& variables, std::initializer_list<const char*> names, const TpuHosts& hosts) {
  std::string wanted;
  for (const char* const name : names) {
    wanted += (wanted.empty() ? "" : " or ") + std::string(name);
    const std::optional<std::string> text = variable(variables, name);
    if (!text) continue;
    const std::optional<int> number = parse_int(*text);
    const int count = static_cast<int>(hosts.hosts.size());
    if (number && *number >= 0 && *number < count) return *number;
    malformed(name, *text, c10::str("0 to ", count - 1, ", because ", hosts.source, " names ", count, " processes"));
  }
  if (hosts.hosts.size() < 2) return 0;
  fail<FailedPrecondition>("[cluster] tpu: ", hosts.source, " names ", hosts.hosts.size(), " processes, but ", wanted,
                           " does not say which of them this one is");
}

// Returns what the metadata server has under a name, or nothing.
std::optional<std::string> attribute(const HttpFetch& fetch, const std::string& name) {
  try {
    return fetch({.url = kMetadata + name, .headers = {"Metadata-Flavor: Google"}, .timeout = std::chrono::seconds(5)});
  } catch (const Unavailable& error) {
    log().info("[cluster] tpu: {}", error.what());
    return std::nullopt;
  }
}

// The hosts of a TPU VM's pod: "worker-network-endpoints" is name:id:address for each.
TpuHosts ask_metadata(const HttpFetch& fetch) {
  TpuHosts hosts{.hosts = {}, .process = 0, .source = "the metadata server (worker-network-endpoints)"};
  const std::optional<std::string> endpoints = attribute(fetch, "worker-network-endpoints");
  if (!endpoints || endpoints->empty()) return hosts;
  for (const std::string& endpoint : split(*endpoints, ',')) {
    const std::vector<std::string> fields = split(endpoint, ':');
    if (fields.size() < 3 || fields[2].empty()) malformed(hosts.source, *endpoints, "name:id:address for each host");
    hosts.hosts.push_back(fields[2]);
  }
  if (hosts.hosts.size() < 2) return hosts;
  const std::optional<std::string> number = attribute(fetch, "agent-worker-number");
  hosts.process =
      process_of(environment_of({{"agent-worker-number", number.value_or("")}}), {"agent-worker-number"}, hosts);
  return hosts;
}

TpuHosts named_hosts(const Environment& variables) {
  TpuHosts hosts;
  if (const auto addresses = variable(variables, "TPU_PROCESS_ADDRESSES")) {
    hosts.source = "TPU_PROCESS_ADDRESSES";
    hosts.hosts = hosts_of_addresses(hosts.source, *addresses);
    hosts.process = process_of(variables, {"CLOUD_TPU_TASK_ID"}, hosts);
  } else if (const auto names = variable(variables, "TPU_WORKER_HOSTNAMES")) {
    hosts.source = "TPU_WORKER_HOSTNAMES";
    hosts.hosts = hosts_of_names(hosts.source, *names);
    hosts.process = process_of(variables, {"CLOUD_TPU_TASK_ID", "TPU_WORKER_ID"}, hosts);
    (void)process_of(variables, {"TPU_WORKER_ID", "CLOUD_TPU_TASK_ID"}, hosts);  // whichever is set has to fit
  }
  return hosts;
}

// Holds the number of processes against the bounds, which are a box of them.
void check_bounds(const TpuHosts& hosts, const std::optional<TpuBounds>& bounds) {
  if (!bounds) return;
  const auto count = std::max<std::size_t>(hosts.hosts.size(), 1);
  if (static_cast<std::size_t>(bounds->count) == count) return;
  if (hosts.hosts.empty()) {
    fail<FailedPrecondition>("[cluster] tpu: ", bounds->variable, " is ", bounds->text, ", which is ", bounds->count,
                             " processes, but neither TPU_PROCESS_ADDRESSES nor TPU_WORKER_HOSTNAMES names them");
  }
  fail<InvalidArgument>("[cluster] tpu: ", bounds->variable, " is ", bounds->text, ", which is ", bounds->count,
                        " processes, but ", hosts.source, " names ", count);
}

}  // namespace

std::optional<TpuBounds> tpu_chips_of_process(const Environment& variables) {
  return bounds_of(variables, {"TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_CHIPS_PER_HOST_BOUNDS"});
}

TpuHosts read_tpu_hosts(const Environment& variables, bool metadata, const HttpFetch& fetch) {
  if (const auto slices = variable(variables, "MEGASCALE_NUM_SLICES"); slices && *slices != "1") {
    fail<Unimplemented>("[cluster] tpu: MEGASCALE_NUM_SLICES is ", *slices,
                        ": several slices are not connected here, one slice is");
  }
  const auto bounds = bounds_of(variables, {"TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS"});
  TpuHosts hosts = named_hosts(variables);
  // On a host of a pod, the bounds 1,1,1 keep a process to the chips of that host.
  const bool alone = bounds && bounds->count == 1;
  if (hosts.hosts.empty() && metadata && !alone) hosts = ask_metadata(fetch);
  check_bounds(hosts, bounds);
  (void)tpu_chips_of_process(variables);
  return hosts;
}

}  // namespace cohort
