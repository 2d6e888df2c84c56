#define COHORT_ISA baseline
#include "wings/optimizers/optimizer/kernels/more_impl.h"
