#define COHORT_ISA baseline
#include "ops/kernels/vector_impl.h"
