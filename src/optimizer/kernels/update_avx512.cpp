#define COHORT_ISA avx512
#include "optimizer/kernels/update_impl.h"
