// The instruction sets that kernels are compiled for. The build compiles a <name>_impl.h once for each of them
// (cohort_kernel_variants in cmake/CohortTargets.cmake). All give the same bits, so which one runs is a matter of speed
// only.
#pragma once

namespace cohort::kernels {

enum class Isa {
  kBaseline,  // the compiler's own target: SSE2 on x86-64, NEON on AArch64
  kAvx2,      // AVX2 and FMA: Haswell and Zen on
  kAvx512,    // AVX-512 F, BW, DQ and VL: Skylake-X and Zen 4 on
};

inline constexpr Isa kIsas[] = {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512};

const char* name(Isa isa);
// Returns whether this CPU and its operating system can run the instruction set.
bool runs(Isa isa);
// Returns the last one of kIsas that runs here. It is determined once.
Isa best_isa();

}  // namespace cohort::kernels
