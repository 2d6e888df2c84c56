#define COHORT_ISA cuda
#include "optimizer/kernels/half_impl.h"
