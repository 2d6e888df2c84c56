#define COHORT_ISA cuda
#include "wings/optimizers/optimizer/kernels/more_half_impl.h"
