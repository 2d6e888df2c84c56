// What the bits of a training depend on, beside its program, its data and the shape of its cluster.
#pragma once

#include <map>
#include <string>

namespace cohort {

// Returns this process's: the CPU's instruction set ("cpu"), the kernels of the BLAS ("blas"), the threads of an
// operation ("threads"), and the versions of LibTorch and Cohort ("libtorch", "cohort").
const std::map<std::string, std::string>& this_environment();

// Returns what has changed, as text: "threads (4, now 2), libtorch (1.13.0, now 2.5.1)"; empty: nothing of what was
// saved.
std::string changes_since(const std::map<std::string, std::string>& saved,
                          const std::map<std::string, std::string>& now);

}  // namespace cohort
