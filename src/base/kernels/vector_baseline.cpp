#define COHORT_ISA baseline
#include "base/kernels/vector_impl.h"
