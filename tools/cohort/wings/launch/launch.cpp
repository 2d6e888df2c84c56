// cohort launch: starts the workers of a program, on this machine or on several, and ends them together.
#include "wings/launch/launch.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/cpu_threads.h"
#include "base/fail.h"
#include "cluster/free_port.h"
#include "cohort/device.h"
#include "wings/launch/elastic/elastic.h"
#include "wings/launch/group.h"
#include "wings/launch/remote.h"
#include "wings/launch/trust.h"

namespace cohort::cli {

namespace {

struct LaunchFlags {
  LaunchOptions options;
  RemoteOptions remote;
  ElasticOptions elastic;
  TrustOptions trust;
  std::vector<std::string> exports;  // NAME or NAME=VALUE
  std::string log_dir;
  int max_restarts = 0;
  double grace = 30.0;
  bool until_eof = false;
  bool read_job = false;
};

// Returns whether the variable of this name is likely to be a secret.
bool is_secret(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  constexpr std::array kWords = {"SECRET",     "TOKEN",   "PASSWORD",   "PASSWD",
                                 "CREDENTIAL", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](const char* word) { return name.find(word) != std::string::npos; });
}

std::map<std::string, std::string> exported(const std::vector<std::string>& exports) {
  std::map<std::string, std::string> set;
  for (const std::string& each : exports) {
    const std::size_t equals = each.find('=');
    const std::string name = each.substr(0, equals);
    if (name.empty()) fail<InvalidArgument>("[launch] -x ", each, ": wanted NAME or NAME=VALUE");
    if (equals != std::string::npos && is_secret(name)) {
      fail<InvalidArgument>("[launch] -x ", name, "=...: arguments stand in the list of processes, where others read ",
                            "them; set the variable here and give -x ", name);
    }
    if (equals != std::string::npos) {
      set[name] = each.substr(equals + 1);
    } else if (const char* value = std::getenv(name.c_str())) {
      set[name] = value;
    } else {
      fail<InvalidArgument>("[launch] -x ", name, ": it is not set here; give NAME=VALUE");
    }
  }
  return set;
}

std::string log_folder(const std::string& folder, int attempt) {
  if (folder.empty()) return "";
  std::string name = c10::str(folder, "/attempt_", attempt);
  std::error_code error;
  std::filesystem::create_directories(name, error);
  if (error) fail<InvalidArgument>("[launch] --log_dir=", folder, " cannot be made: ", error.message());
  return name;
}

// Returns the processes of an attempt: the workers, or with hosts a launcher on each of them.
std::vector<WorkerPlan> plan(const LaunchFlags& flags, const std::string& secret, int attempt) {
  if (flags.remote.active()) return plan_agents(flags.options, flags.remote, flags.trust, secret);
  const bool servers = flags.options.ps > 0;
  const int listening = servers ? 1 + flags.options.ps + flags.options.workers
                        : flags.options.nnodes == 1 && flags.options.hosts.empty() ? flags.options.nproc
                                                                                   : 0;
  std::vector<int> ports = free_ports(flags.options.master_addr, listening);
  if (listening > 0 && flags.options.master_port > 0) {
    std::replace(ports.begin(), ports.end(), flags.options.master_port, ports.front());
    ports.front() = flags.options.master_port;
  }
  if (servers) return plan_parameter_servers(flags.options, ports);
  return plan_workers(flags.options, ports, attempt);
}

GroupOptions group_of(const LaunchFlags& flags, int attempt) {
  return {.log_dir = log_folder(flags.log_dir, attempt),
          .grace = std::chrono::milliseconds(static_cast<int64_t>(flags.grace * 1000)),
          .until_eof = flags.until_eof,
          .restarts_each = flags.options.ps > 0 ? flags.max_restarts : 0};
}

void require_seconds(const char* flag, double seconds) {
  constexpr double kMost = 1e9;  // so many milliseconds still fit in an integer
  if (seconds >= 0.0 && seconds <= kMost) return;
  fail<InvalidArgument>("[launch] ", flag, " is ", seconds, ", wanted seconds, 0 or more");
}

// Throws on options that belong to another kind of launch.
void check_together(const LaunchFlags& flags) {
  const LaunchFlags none;
  const LaunchOptions& options = flags.options;
  const auto only_with = [](bool given, const char* flag, bool there, const char* other) {
    if (given && !there) fail<InvalidArgument>("[launch] ", flag, " has no meaning without ", other);
  };
  const auto not_with = [](bool given, const char* flag, bool there, const char* other) {
    if (given && there) fail<InvalidArgument>("[launch] ", flag, " has no meaning with ", other);
  };
  only_with(options.workers != none.options.workers, "--workers", options.ps > 0, "--ps");
  only_with(flags.remote.ssh != none.remote.ssh, "--ssh", flags.remote.active(), "--hosts");
  only_with(flags.elastic.join_timeout != none.elastic.join_timeout, "--join_timeout", flags.elastic.active(),
            "--elastic or --join");
  const char* const elastic = "--elastic and --join";
  not_with(flags.remote.active(), "--hosts", flags.elastic.active(), elastic);
  not_with(flags.max_restarts != 0, "--max_restarts", flags.elastic.active(), elastic);
  not_with(options.ps > 0, "--ps", flags.elastic.active(), elastic);
  not_with(options.master_port != 0, "--master_port", !flags.elastic.join.empty(), "--join, which has the leader's");
  not_with(options.ps > 0, "--ps", flags.remote.active(), "--hosts");
  const char* const hosts = "--hosts, which says so itself";
  not_with(options.nnodes != 1, "--nnodes", flags.remote.active(), hosts);
  not_with(options.node_rank != 0, "--node_rank", flags.remote.active(), hosts);
  not_with(!options.hosts.empty(), "--node_hosts", flags.remote.active(), hosts);
  not_with(!options.master_addr.empty(), "--master_addr", flags.remote.active(), hosts);
}

// Other launchers that a person starts know nothing of a secret that this one draws.
SecretSource secret_source(const LaunchFlags& flags) {
  if (flags.remote.active()) return SecretSource::kDrawn;
  if (flags.options.nnodes > 1 || !flags.options.hosts.empty()) return SecretSource::kNone;
  if (!flags.elastic.active()) return SecretSource::kDrawn;
  return on_loopback(flags.elastic, flags.options) ? SecretSource::kOfUser : SecretSource::kNone;
}

int launch(LaunchFlags flags) {
  flags.options.set = exported(flags.exports);
  const HandedJob handed = flags.read_job ? read_job(STDIN_FILENO) : HandedJob{};
  flags.options.set.insert(handed.variables.begin(), handed.variables.end());
  require_seconds("--grace_period", flags.grace);
  require_seconds("--join_timeout", flags.elastic.join_timeout);
  check_together(flags);
  const Trust trust(flags.trust, secret_source(flags), handed.secret);
  if (!flags.remote.active()) flags.options.set.insert(trust.variables().begin(), trust.variables().end());
  if (flags.elastic.active()) {
    return launch_elastic(flags.elastic, flags.options,
                          {.security = trust.security(), .allow_insecure = trust.insecure()},
                          [&](int64_t round) { return group_of(flags, static_cast<int>(round - 1)); });
  }
  if (flags.options.master_addr.empty()) flags.options.master_addr = "127.0.0.1";
  if (flags.remote.active() && flags.options.master_port == 0) {
    fail<InvalidArgument>(
        "[launch] --hosts needs --master_port: which port is free on another machine is not known here");
  }
  if (flags.remote.active()) flags.options.nnodes = static_cast<int>(flags.remote.hosts.size());
  check(flags.options);
  if (flags.max_restarts < 0)
    fail<InvalidArgument>("[launch] --max_restarts is ", flags.max_restarts, ", wanted 0 or more");
  Guard guard;
  const Signals signals;
  for (int attempt = 0;; ++attempt) {
    const GroupEnd end = run_group(plan(flags, trust.secret(), attempt), group_of(flags, attempt), signals, guard);
    if (end.code == 0 || end.stopped || flags.options.ps > 0) return end.code;
    if (attempt == flags.max_restarts) {
      if (attempt > 0) std::cerr << "[launch] given up after " << attempt << " restart(s)\n";
      return end.code;
    }
    std::cerr << "[launch] restart " << attempt + 1 << " of " << flags.max_restarts << "\n";
  }
}

// Makes a number of gpu, cpu or auto, as torchrun does. Returns the error, or an empty text.
std::string number_of_workers(std::string& text) {
  const std::size_t gpus = text == "gpu" || text == "auto" ? list_physical_devices("GPU").size() : 0;
  if (text == "gpu" && gpus == 0) return "there is no GPU here";
  if (gpus > 0) {
    text = std::to_string(gpus);
  } else if (text == "cpu" || text == "auto") {
    text = std::to_string(hardware_cores());
  }
  return "";
}

// Adds what each of several launchers is told of the machines.
void add_node_flags(CLI::App& app, LaunchOptions& options) {
  app.add_option("--nnodes", options.nnodes, "machines, when a launcher is started by hand on each")
      ->envname("PET_NNODES")
      ->capture_default_str();
  app.add_option("--node_rank", options.node_rank, "which of these machines this one is")
      ->envname("PET_NODE_RANK")
      ->capture_default_str();
  app.add_option("--master_addr", options.master_addr,
                 "address of node 0, as the others reach it; with --join, of this machine")
      ->envname("PET_MASTER_ADDR")
      ->default_str("127.0.0.1");
  app.add_option("--master_port", options.master_port,
                 "port of worker 0, with --hosts of the first worker on each machine; 0: a free port of this machine")
      ->envname("PET_MASTER_PORT")
      ->capture_default_str();
  app.add_option("--node_hosts", options.hosts, "addresses of all nodes, for TF_CONFIG, separated by commas")
      ->delimiter(',');
}

void add_trust_flags(CLI::App& app, TrustOptions& options) {
  app.add_option("--secret_file", options.secret_file,
                 "secret of the job: a file of 16 bytes or more, the same for all launchers that a person starts; "
                 "without it a secret is drawn, unless there are such others");
  app.add_option("--tls_ca", options.tls_ca,
                 "certificates in place of a secret: that of the authority (PEM), a file that all machines have");
  app.add_option("--tls_cert", options.tls_cert, "the workers' certificate, such a file");
  app.add_option("--tls_key", options.tls_key, "its private key, such a file");
  app.add_flag("--insecure", options.insecure,
               "let workers and launchers speak without encryption to whoever reaches them");
}

}  // namespace

Command add_launch(CLI::App& app, std::vector<std::string> program) {
  const auto flags = std::make_shared<LaunchFlags>();
  flags->options.program = std::move(program);
  app.footer(
      "Every worker runs the same program: cohort launch --nproc=2 -- ./train --epochs=3\n"
      "It finds its cluster in TF_CONFIG and in torchrun's variables. torchrun's own variables, such as PET_NNODES, "
      "are read where flags are not given. Exits with the status of the first worker that failed.");
  app.add_option("--nproc,--nproc_per_node", flags->options.nproc,
                 "workers on each machine; gpu: as many as GPUs, cpu: as many as cores, auto: gpu if there is one, "
                 "else cpu")
      ->transform(CLI::Validator(number_of_workers, "INT|gpu|cpu|auto"))
      ->envname("PET_NPROC_PER_NODE")
      ->capture_default_str();
  app.add_option("--ps", flags->options.ps,
                 "parameter servers to start on this machine, with a chief and --workers workers; each task is started "
                 "again by itself")
      ->capture_default_str();
  app.add_option("--workers", flags->options.workers, "workers beside the parameter servers")->capture_default_str();
  app.add_option("--hosts", flags->remote.hosts,
                 "machines to start the workers on over ssh, separated by commas; without it on this machine")
      ->delimiter(',');
  add_node_flags(app, flags->options);
  app.add_option("--max_restarts", flags->max_restarts,
                 "times to start all workers anew when one has failed; with --ps, each task by itself")
      ->envname("PET_MAX_RESTARTS")
      ->capture_default_str();
  app.add_option("--grace_period", flags->grace, "seconds from asking a worker to end to killing it")
      ->capture_default_str();
  app.add_option("--elastic", flags->elastic.bounds,
                 "MIN:MAX: lead a run that goes on with the workers that are left, as long as there are MIN, and takes "
                 "in others up to MAX");
  app.add_option("--join", flags->elastic.join, "HOST:PORT: take part in the elastic run that is led there");
  app.add_option("--join_timeout", flags->elastic.join_timeout, "seconds to wait for MIN workers, or for the leader")
      ->capture_default_str();
  add_trust_flags(app, flags->trust);
  app.add_flag(
      "--evaluator", flags->options.evaluator,
      "start one more process beside the workers, the evaluator: it evaluates the checkpoints and ends with the "
      "training");
  app.add_option("--log_dir", flags->log_dir,
                 "folder for the workers' output: attempt_0/worker_0.log, ... (host_a.log of a machine)");
  app.add_option("-x,--export", flags->exports, "variable of the workers: NAME=VALUE, or NAME with its value here");
  app.add_option("--ssh", flags->remote.ssh, "command that reaches a host; it is called with the host and one command")
      ->capture_default_str();
  app.add_flag("--until_eof", flags->until_eof, "end with standard input, as launchers do that another one started");
  app.add_flag("--read_job", flags->read_job,
               "read the job's secret and variables from the first line of standard input, which launchers write that "
               "another one started");
  return [flags] { return launch(*flags); };
}

}  // namespace cohort::cli
