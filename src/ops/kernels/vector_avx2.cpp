#define COHORT_ISA avx2
#include "ops/kernels/vector_impl.h"
