#define COHORT_ISA baseline
#include "data/images/kernels/pixel_impl.h"
