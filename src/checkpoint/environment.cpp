#include "checkpoint/environment.h"

#include <torch/version.h>

#include <cstdlib>

#include "base/cpu_threads.h"
#include "cohort/version.h"
#include "ops/kernels/isa.h"

namespace cohort {

namespace {

std::string variable_or(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

}  // namespace

const std::map<std::string, std::string>& this_environment() {
  static const std::map<std::string, std::string> here{
      {"cpu", variable_or("ATEN_CPU_CAPABILITY", kernels::name(kernels::best_isa()))},
      {"blas", blas_core()},
      {"threads", variable_or("OMP_NUM_THREADS", std::to_string(hardware_cores()))},
      {"libtorch", TORCH_VERSION},
      {"cohort", COHORT_VERSION},
  };
  return here;
}

std::string changes_since(const std::map<std::string, std::string>& saved,
                          const std::map<std::string, std::string>& now) {
  std::string text;
  for (const auto& [key, value] : saved) {
    const auto found = now.find(key);
    if (found == now.end() || found->second == value) continue;
    text += (text.empty() ? "" : ", ") + key + " (" + value + ", now " + found->second + ")";
  }
  return text;
}

}  // namespace cohort
