#define COHORT_ISA cuda
#include "optimizer/kernels/update_impl.h"
