// The processes of a TPU pod, as libtpu's variables and Google's metadata server tell them. What a variable says is
// held against the others here, because libtpu itself waits for minutes for hosts that do not come.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/cluster/tpu_resolver.h"

namespace cohort {

struct TpuHosts {
  std::vector<std::string> hosts;  // the host of each process, without port; of one process: nothing or one
  int process = 0;                 // the number of this one
  std::string source;              // the variable that names them, for messages
};

// Reads the variables, and where they name no hosts and `metadata` is true, the metadata server, of which one that does
// not answer speaks of no hosts. Errors as TPUClusterResolver has them.
TpuHosts read_tpu_hosts(const Environment& variables, bool metadata, const HttpFetch& fetch);

// Returns the number of chips of a process that TPU_CHIPS_PER_PROCESS_BOUNDS (TPU_CHIPS_PER_HOST_BOUNDS) asks for, with
// the name of the variable; nothing: it is not set. InvalidArgument: it is malformed.
struct TpuBounds {
  std::string variable;
  std::string text;
  int count = 1;  // the product
};
std::optional<TpuBounds> tpu_chips_of_process(const Environment& variables);

}  // namespace cohort
