// The options of a parameter server.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "rpc/channel.h"

namespace cohort {

struct ServingOptions {
  int index = 0;                       // index of this task
  std::vector<std::string> addresses;  // addresses of all ps tasks, by index
  SecurityOptions security = {};
  // The longest time of calls to other servers.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
};

}  // namespace cohort
