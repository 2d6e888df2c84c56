#define COHORT_ISA avx2
#include "wings/optimizers/optimizer/kernels/more_impl.h"
