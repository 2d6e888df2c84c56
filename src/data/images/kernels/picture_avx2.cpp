#define COHORT_ISA avx2
#include "data/images/kernels/picture_impl.h"
