#define COHORT_ISA avx512
#include "ops/kernels/vector_impl.h"
