// The kernels for parameters of half precision; see optimizer/kernels/half_impl.h.
#include "wings/optimizers/optimizer/kernels/more_rules.h"

namespace cohort::kernels::COHORT_ISA {

const MoreHalfTables kMoreHalfTables = {kMoreTable<Half, float>, kMoreTable<BFloat16, float>};

}  // namespace cohort::kernels::COHORT_ISA
