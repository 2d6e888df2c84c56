#define COHORT_ISA avx2
#include "base/kernels/vector_impl.h"
