#define COHORT_ISA avx2
#include "data/images/kernels/pixel_impl.h"
