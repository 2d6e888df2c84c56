// Which of the compiled variants of a kernel this CPU runs.
#pragma once

namespace cohort::kernels {

enum class CpuLevel { kBaseline, kAvx2, kAvx512 };

inline CpuLevel cpu_level() {
#if defined(__x86_64__)
  static const CpuLevel level = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw")) {
      return CpuLevel::kAvx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return CpuLevel::kAvx2;
    return CpuLevel::kBaseline;
  }();
  return level;
#else
  return CpuLevel::kBaseline;
#endif
}

}  // namespace cohort::kernels
