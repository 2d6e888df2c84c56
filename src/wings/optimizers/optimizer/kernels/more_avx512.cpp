#define COHORT_ISA avx512
#include "wings/optimizers/optimizer/kernels/more_impl.h"
