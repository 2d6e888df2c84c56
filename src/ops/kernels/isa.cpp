#include "ops/kernels/isa.h"

namespace cohort::kernels {

const char* name(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    default:
      return "baseline";
  }
}

bool runs(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == Isa::kAvx2) return avx2;
  if (isa == Isa::kAvx512) {
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
#endif
  return isa == Isa::kBaseline;
}

Isa best_isa() {
  static const Isa best = runs(Isa::kAvx512) ? Isa::kAvx512 : runs(Isa::kAvx2) ? Isa::kAvx2 : Isa::kBaseline;
  return best;
}

}  // namespace cohort::kernels
