// EtcdServers: an etcd cluster for a test, of real processes in temporary folders.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cluster/free_port.h"
#include "tests/support/files.h"

namespace cohort::testing {

// Returns the path of the program, or "" if this machine has none of that name.
inline std::string program_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// Returns what etcdctl prints.
inline std::string etcdctl(const std::string& address, const std::string& arguments) {
  const std::string command = "ETCDCTL_API=3 etcdctl --endpoints=" + address + " " + arguments + " 2>&1";
  std::string text;
  FILE* const pipe = ::popen(command.c_str(), "r");
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  ::pclose(pipe);
  return text;
}

class EtcdServers {
 public:
  // Returns why there can be none, or "".
  static std::string missing() {
    return program_path("etcd").empty() ? "etcd is not here: apt-get install etcd-server" : "";
  }

  // Starts so many members. `more` are further arguments of each.
  explicit EtcdServers(int count, const std::vector<std::string>& more = {}, const std::string& scheme = "http")
      : scheme_(scheme), more_(more) {
    ports_ = free_ports("127.0.0.1", 2 * count);
    pids_.assign(static_cast<std::size_t>(count), -1);
    for (int i = 0; i < count; ++i) start(i);
  }
  EtcdServers(const EtcdServers&) = delete;
  EtcdServers& operator=(const EtcdServers&) = delete;
  ~EtcdServers() {
    for (int i = 0; i < size(); ++i) {
      send(i, SIGCONT);
      kill(i);
    }
  }

  int size() const { return static_cast<int>(pids_.size()); }
  std::string address(int member) const { return "127.0.0.1:" + std::to_string(port(member, 0)); }
  // Returns the addresses of all members, separated by commas.
  std::string addresses() const {
    std::string text;
    for (int i = 0; i < size(); ++i) text += (i == 0 ? "" : ",") + address(i);
    return text;
  }
  void send(int member, int signal) const {
    if (pids_.at(static_cast<std::size_t>(member)) > 0) ::kill(pids_.at(static_cast<std::size_t>(member)), signal);
  }
  // Kills the member as kill -9 does.
  void kill(int member) {
    pid_t& pid = pids_.at(static_cast<std::size_t>(member));
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = -1;
  }
  // Starts a member that was killed, with the data that it has.
  void start(int member) {
    std::string peers;
    for (int i = 0; i < size(); ++i) {
      peers += (i == 0 ? "" : ",") + name(i) + "=http://127.0.0.1:" + std::to_string(port(i, 1));
    }
    const std::string client = scheme_ + "://" + address(member);
    const std::string peer = "http://127.0.0.1:" + std::to_string(port(member, 1));
    std::vector<std::string> command = {program_path("etcd"),
                                        "--name=" + name(member),
                                        "--data-dir=" + (folder_ / name(member)).string(),
                                        "--listen-client-urls=" + client,
                                        "--advertise-client-urls=" + client,
                                        "--listen-peer-urls=" + peer,
                                        "--initial-advertise-peer-urls=" + peer,
                                        "--initial-cluster=" + peers,
                                        "--initial-cluster-token=cohort-test",
                                        "--unsafe-no-fsync=true"};
    command.insert(command.end(), more_.begin(), more_.end());
    pids_.at(static_cast<std::size_t>(member)) = spawn(command, folder_ / (name(member) + ".log"));
  }

 private:
  static std::string name(int member) { return "member" + std::to_string(member); }
  int port(int member, int which) const { return ports_.at(static_cast<std::size_t>(2 * member + which)); }

  static pid_t spawn(const std::vector<std::string>& command, const std::filesystem::path& log) {
    std::vector<char*> arguments;
    for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    pid_t pid = -1;
    const int error = ::posix_spawn(&pid, arguments[0], &files, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&files);
    if (error != 0) throw std::runtime_error("etcd cannot be started");
    return pid;
  }

  TemporaryFolder folder_;
  std::string scheme_;
  std::vector<std::string> more_;
  std::vector<int> ports_;
  std::vector<pid_t> pids_;
};

}  // namespace cohort::testing
