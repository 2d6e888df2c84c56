#define COHORT_ISA avx512
#include "data/images/kernels/pixel_impl.h"
