#define COHORT_ISA avx512
#include "base/kernels/vector_impl.h"
