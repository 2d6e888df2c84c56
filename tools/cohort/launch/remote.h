// Launching on other machines: a launcher on each, started over ssh, which ends with its connection.
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

// One process for each host, "host a": `ssh HOST COMMAND`, where the command starts this program on the host with the
// same path and in the same folder. Its plan has the whole command line in `command`.
std::vector<WorkerPlan> plan_agents(const LaunchOptions& options, const RemoteOptions& remote);

// The text as one word of a shell's command.
std::string quoted(const std::string& text);

}  // namespace cohort::cli
