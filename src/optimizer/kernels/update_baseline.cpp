#define COHORT_ISA baseline
#include "optimizer/kernels/update_impl.h"
