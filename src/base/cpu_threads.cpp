#include "base/cpu_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

namespace cohort {

namespace {

// Returns the cores of the quota in cgroup v2's cpu.max ("200000 100000"), or 0 if there is no quota.
int cgroup_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0.0;
  double period = 0.0;
  if (!(file >> quota >> period) || period <= 0.0) return 0;
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

int count_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
  if (cores == 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  const int quota = cgroup_cores();
  return std::max(1, quota > 0 ? std::min(cores, quota) : cores);
}

// OpenBLAS is found at run time: LibTorch may have been built with another BLAS.
template <typename Function>
Function* symbol(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

void keep_blas_to_one_thread() {
  [[maybe_unused]] static const bool done = [] {
    if (auto* const set = symbol<void(int)>("openblas_set_num_threads")) set(1);
    return true;
  }();
}

// LibTorch sets the number of a thread by itself when the thread first asks for it, once in its own code and once in
// ours (its inline functions): a number that was set before would last until then, and what the thread computes would
// depend on whether the thread is new.
int own_threads() {
  (void)at::get_num_threads();
  at::internal::lazy_init_num_threads();
  return omp_get_max_threads();
}

}  // namespace

int hardware_cores() {
  static const int cores = count_cores();
  return cores;
}

IntraOpThreads::IntraOpThreads(int threads) : before_(own_threads()) {
  if (before_ != threads) omp_set_num_threads(threads);
  keep_blas_to_one_thread();
}

IntraOpThreads::~IntraOpThreads() {
  if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
}

std::string blas_core() {
  static auto* const name = symbol<char*()>("openblas_get_corename");
  return name == nullptr ? std::string() : std::string(name());
}

std::string better_blas_core() {
#if defined(__x86_64__)
  const std::string core = blas_core();
  const bool old_core =
      core == "Haswell" || core == "Zen" || core == "Sandybridge" || core == "Nehalem" || core == "Prescott";
  if (old_core && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return "SkylakeX";
  }
  if (old_core && core != "Haswell" && core != "Zen" && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("fma")) {
    return "Haswell";
  }
#endif
  return {};
}

}  // namespace cohort
