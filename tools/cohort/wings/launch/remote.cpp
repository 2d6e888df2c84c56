#include "wings/launch/remote.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/deadline.h"
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

constexpr std::size_t kLongestJob = 60'000;  // fits into a pipe
constexpr std::chrono::minutes kJobLimit(1);

// Returns the first line, and reads no byte behind it.
std::string first_line(int fd) {
  const Deadline deadline(kJobLimit);
  std::string line;
  while (line.size() <= kLongestJob) {
    pollfd place{.fd = fd, .events = POLLIN, .revents = 0};
    char next = 0;
    const int ready = ::poll(&place, 1, static_cast<int>(deadline.left().count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || ::read(fd, &next, 1) != 1) break;
    if (next == '\n') return line;
    line += next;
  }
  fail<InvalidArgument>("[launch] --read_job: no line came on standard input that another launcher wrote");
}

}  // namespace

HandedJob read_job(int fd) {
  const auto job = nlohmann::json::parse(first_line(fd), nullptr, /*allow_exceptions=*/false);
  try {
    return {.secret = job.at("secret").get<std::string>(),
            .variables = job.at("variables").get<std::map<std::string, std::string>>()};
  } catch (const nlohmann::json::exception&) {
    fail<InvalidArgument>("[launch] --read_job: the first line of standard input is none that another launcher wrote");
  }
}

std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) c == '\'' ? word += "'\\''" : word += c;
  return word + "'";
}

std::vector<WorkerPlan> plan_agents(const LaunchOptions& options, const RemoteOptions& remote,
                                    const TrustOptions& trust, const std::string& secret) {
  const std::vector<std::string> ssh = words(remote.ssh);
  if (ssh.empty()) fail<InvalidArgument>("[launch] --ssh is empty");
  const std::string input = nlohmann::json{{"secret", secret}, {"variables", options.set}}.dump() + "\n";
  if (input.size() > kLongestJob) {
    fail<InvalidArgument>("[launch] the variables (-x) have ", input.size(), " bytes, wanted at most ", kLongestJob);
  }
  std::vector<WorkerPlan> agents;
  for (std::size_t node = 0; node < remote.hosts.size(); ++node) {
    std::vector<std::string> call{std::filesystem::read_symlink("/proc/self/exe").string(),
                                  "launch",
                                  "--until_eof",
                                  "--read_job",
                                  c10::str("--nproc=", options.nproc),
                                  c10::str("--nnodes=", remote.hosts.size()),
                                  c10::str("--node_rank=", node),
                                  "--node_hosts=" + joined(remote.hosts),
                                  "--master_addr=" + address_of(remote.hosts.front()),
                                  c10::str("--master_port=", options.master_port)};
    if (options.evaluator) call.emplace_back("--evaluator");
    if (trust.insecure) call.emplace_back("--insecure");
    for (const auto& [flag, file] : std::map<std::string, std::string>{
             {"--tls_ca=", trust.tls_ca}, {"--tls_cert=", trust.tls_cert}, {"--tls_key=", trust.tls_key}}) {
      if (!file.empty()) call.push_back(flag + file);
    }
    call.emplace_back("--");
    call.insert(call.end(), options.program.begin(), options.program.end());
    std::string command = "cd " + quoted(std::filesystem::current_path().string()) + " && exec";
    for (const std::string& word : call) command += " " + quoted(word);
    WorkerPlan agent{.rank = static_cast<int>(node),
                     .name = "host " + remote.hosts[node],
                     .command = ssh,
                     .hold_stdin = true,
                     .input = input};
    agent.command.push_back(remote.hosts[node]);
    agent.command.push_back(command);
    agents.push_back(std::move(agent));
  }
  return agents;
}

}  // namespace cohort::cli
