// Launches on other machines: a launcher runs on each, started over ssh, and ends with its connection.
#pragma once

#include <string>
#include <vector>

#include "launch/plan.h"

namespace cohort::cli {

struct RemoteOptions {
  std::vector<std::string> hosts;
  std::string ssh = "ssh -o BatchMode=yes";

  bool active() const { return !hosts.empty(); }
};

// Returns one process for each host, named "host a": `ssh HOST COMMAND`. The command starts this program on the host
// under the same path and in the same folder. The whole command line stands in `command` of the plan.
std::vector<WorkerPlan> plan_agents(const LaunchOptions& options, const RemoteOptions& remote);

// Returns the text as one word of a shell command.
std::string quoted(const std::string& text);

}  // namespace cohort::cli
