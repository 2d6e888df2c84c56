#define COHORT_ISA cuda
#include "optimizer/kernels/rule_table.h"

namespace cohort::kernels::cuda {

const UpdateTables kUpdateTables = {kTable<float, float>, kTable<double, double>};

}  // namespace cohort::kernels::cuda
