#define COHORT_ISA avx512
#include "wings/vision/data/images/kernels/pixel_impl.h"
