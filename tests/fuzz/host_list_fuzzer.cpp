// Any text either is one of Slurm's lists, whose members are lists of one host, or is refused with an error of ours.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cluster/host_list.h"
#include "cohort/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    std::vector<std::string> hosts = cohort::expand_host_list(text, "fuzz");
    hosts.resize(std::min<std::size_t>(hosts.size(), 100));
    for (const std::string& host : hosts) {
      if (cohort::expand_host_list(host, "fuzz") != std::vector{host}) std::abort();
    }
  } catch (const cohort::Error&) {
  }
  try {
    for (const int count : cohort::expand_task_counts(text, "fuzz")) {
      if (count < 0) std::abort();
    }
  } catch (const cohort::Error&) {
  }
  return 0;
}
