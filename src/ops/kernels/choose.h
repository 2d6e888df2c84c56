// Picks one of three tables of kernels. The files that are compiled for one instruction set may not include it: see
// isa.h.
#pragma once

#include "ops/kernels/isa.h"

namespace cohort::kernels {

template <typename Table>
const Table& choose(Isa isa, const Table& baseline, const Table& avx2, const Table& avx512) {
  return isa == Isa::kAvx512 ? avx512 : isa == Isa::kAvx2 ? avx2 : baseline;
}

}  // namespace cohort::kernels
