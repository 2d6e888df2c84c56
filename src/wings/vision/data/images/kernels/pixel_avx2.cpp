#define COHORT_ISA avx2
#include "wings/vision/data/images/kernels/pixel_impl.h"
