#define COHORT_ISA baseline
#include "optimizer/kernels/half_impl.h"
