#include "launch/remote.h"

#include <filesystem>
#include <sstream>

#include "base/fail.h"

namespace cohort::cli {

namespace {

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> list;
  for (std::string word; stream >> word;) list.push_back(word);
  return list;
}

// Returns the host in "user@host".
std::string address_of(const std::string& host) {
  return host.substr(host.find('@') + 1);
}

std::string joined(const std::vector<std::string>& hosts) {
  std::string text;
  for (const std::string& host : hosts) text += (text.empty() ? "" : ",") + address_of(host);
  return text;
}

}  // namespace

std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) c == '\'' ? word += "'\\''" : word += c;
  return word + "'";
}

std::vector<WorkerPlan> plan_agents(const LaunchOptions& options, const RemoteOptions& remote) {
  const std::vector<std::string> ssh = words(remote.ssh);
  if (ssh.empty()) fail<InvalidArgument>("[launch] --ssh is empty");
  std::vector<WorkerPlan> agents;
  for (std::size_t node = 0; node < remote.hosts.size(); ++node) {
    std::vector<std::string> call{std::filesystem::read_symlink("/proc/self/exe").string(),
                                  "launch",
                                  "--until_eof",
                                  c10::str("--nproc=", options.nproc),
                                  c10::str("--nnodes=", remote.hosts.size()),
                                  c10::str("--node_rank=", node),
                                  "--node_hosts=" + joined(remote.hosts),
                                  "--master_addr=" + address_of(remote.hosts.front()),
                                  c10::str("--master_port=", options.master_port)};
    if (options.evaluator) call.emplace_back("--evaluator");
    for (const auto& [name, value] : options.set) call.push_back(c10::str("--export=", name, "=", value));
    call.emplace_back("--");
    call.insert(call.end(), options.program.begin(), options.program.end());
    std::string command = "cd " + quoted(std::filesystem::current_path().string()) + " && exec";
    for (const std::string& word : call) command += " " + quoted(word);
    WorkerPlan agent{
        .rank = static_cast<int>(node), .name = "host " + remote.hosts[node], .command = ssh, .hold_stdin = true};
    agent.command.push_back(remote.hosts[node]);
    agent.command.push_back(command);
    agents.push_back(std::move(agent));
  }
  return agents;
}

}  // namespace cohort::cli
