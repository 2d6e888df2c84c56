#define COHORT_ISA cuda
#include "wings/optimizers/optimizer/kernels/more_rules.h"

namespace cohort::kernels::cuda {

const MoreTables kMoreTables = {kMoreTable<float, float>, kMoreTable<double, double>};

}  // namespace cohort::kernels::cuda
