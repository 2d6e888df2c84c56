#include "wings/launch/elastic/elastic.h"

#include <iostream>

#include "base/fail.h"
#include "cluster/free_port.h"
#include "cluster/own_host.h"
#include "rpc/local_end.h"
#include "wings/launch/elastic/agent.h"

namespace cohort::cli {

namespace {

std::pair<int, int> parse_bounds(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto least = parse_int(text.substr(0, colon));
  const auto most = colon == std::string::npos ? std::nullopt : parse_int(text.substr(colon + 1));
  if (least && most && *least >= 1 && *most >= *least) return {*least, *most};
  fail<InvalidArgument>("[launch] --elastic=", text, ": wanted MIN:MAX, numbers of workers, such as 2:4");
}

std::string leader_host(const LaunchOptions& launch) {
  return launch.master_addr.empty() ? "127.0.0.1" : launch.master_addr;
}

// Returns the flag that others need to be trusted, if they need one.
std::string hint(const std::string& host, const JobSecurity& security) {
  if (security.allow_insecure) return " --insecure";
  if (!security.security.ca_file.empty()) return " --tls_ca=FILE --tls_cert=FILE --tls_key=FILE";
  return is_loopback(host, "[launch] --master_addr=" + host) ? "" : " --secret_file=FILE";
}

int join(const ElasticOptions& options, AgentOptions& agent, const JobSecurity& security, const Signals& signals,
         Guard& guard) {
  const auto address = parse_address(options.join);
  if (!address) fail<InvalidArgument>("[launch] --join=", options.join, ": wanted the leader's host:port");
  agent.host = agent.launch.master_addr.empty() ? interface_towards(*address) : agent.launch.master_addr;
  const std::unique_ptr<Leader> leader = connect_to_rendezvous(options.join, security.security);
  return run_agent(*leader, agent, signals, guard);
}

int lead(const ElasticOptions& options, AgentOptions& agent, const JobSecurity& security, const Signals& signals,
         Guard& guard) {
  const auto [least, most] = parse_bounds(options.bounds);
  agent.host = leader_host(agent.launch);
  const int port = agent.launch.master_port > 0 ? agent.launch.master_port : free_port(agent.host);
  const std::string address = Address{agent.host, port}.to_string();
  RendezvousServer leader(address, {.least = least, .most = most, .join_timeout = agent.join_timeout}, security);
  std::cerr << "[launch] others may join: cohort launch --join=" + address + hint(agent.host, security) +
                   " -- PROGRAM ARGUMENTS\n";
  const int code = run_agent(leader, agent, signals, guard);
  leader.finish(code);
  return code;
}

}  // namespace

bool on_loopback(const ElasticOptions& options, const LaunchOptions& launch) {
  const auto leader = parse_address(options.join);
  if (!options.join.empty() && !leader) {
    fail<InvalidArgument>("[launch] --join=", options.join, ": wanted the leader's host:port");
  }
  const std::string host = leader ? leader->host : leader_host(launch);
  try {
    return is_loopback(host, "[launch] the leader of the run");
  } catch (const Unavailable&) {  // The connection will say so.
    return false;
  }
}

int launch_elastic(const ElasticOptions& options, const LaunchOptions& launch, const JobSecurity& security,
                   const std::function<GroupOptions(int64_t round)>& group) {
  if (!options.bounds.empty() && !options.join.empty()) {
    fail<InvalidArgument>("[launch] --elastic is for the leader and --join for the others; only one of them may come");
  }
  if (launch.program.empty() || launch.nproc < 1 || launch.nnodes != 1 || launch.evaluator || !launch.hosts.empty()) {
    fail<InvalidArgument>("[launch] --elastic and --join want a program after --, --nproc of 1 or more, and neither ",
                          "--nnodes nor --node_hosts nor --evaluator: every machine's launcher is started by hand");
  }
  Guard guard;
  const Signals signals;
  const auto join_timeout = std::chrono::milliseconds(static_cast<int64_t>(options.join_timeout * 1000));
  AgentOptions agent{.launch = launch, .host = "", .join_timeout = join_timeout, .group = group};
  return options.join.empty() ? lead(options, agent, security, signals, guard)
                              : join(options, agent, security, signals, guard);
}

}  // namespace cohort::cli
