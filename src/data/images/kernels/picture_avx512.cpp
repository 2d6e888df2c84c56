#define COHORT_ISA avx512
#include "data/images/kernels/picture_impl.h"
