// The update kernels for parameters of half precision: for cards, and for what stands in for them in tests, which needs
// no instruction set of its own.
#include "optimizer/kernels/rule_table.h"

namespace cohort::kernels::COHORT_ISA {

const HalfTables kHalfTables = {kTable<Half, float>, kTable<BFloat16, float>};

}  // namespace cohort::kernels::COHORT_ISA
