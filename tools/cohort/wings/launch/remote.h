// Launches on other machines: a launcher runs on each, started over ssh, and ends with its connection.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "wings/launch/plan.h"
#include "wings/launch/trust.h"

namespace cohort::cli {

struct RemoteOptions {
  std::vector<std::string> hosts;
  std::string ssh = "ssh -o BatchMode=yes";

  bool active() const { return !hosts.empty(); }
};

// Returns one process for each host, named "host a": `ssh HOST COMMAND`. The command starts this program on the host
// under the same path and in the same folder. The whole command line stands in `command` of the plan; what others must
// not read there, the secret and the variables, in `input`. InvalidArgument: the variables are too long.
std::vector<WorkerPlan> plan_agents(const LaunchOptions& options, const RemoteOptions& remote,
                                    const TrustOptions& trust, const std::string& secret);

// What a launcher hands to those that it starts.
struct HandedJob {
  std::string secret;
  std::map<std::string, std::string> variables;
};

// Reads it from a descriptor, and nothing behind it. InvalidArgument: a minute passes before, or it is none.
HandedJob read_job(int fd);

// Returns the text as one word of a shell command.
std::string quoted(const std::string& text);

}  // namespace cohort::cli
