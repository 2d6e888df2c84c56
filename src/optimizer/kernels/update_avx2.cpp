#define COHORT_ISA avx2
#include "optimizer/kernels/update_impl.h"
