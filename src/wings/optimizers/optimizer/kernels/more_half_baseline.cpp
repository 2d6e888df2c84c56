#define COHORT_ISA baseline
#include "wings/optimizers/optimizer/kernels/more_half_impl.h"
