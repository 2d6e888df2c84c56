#define COHORT_ISA avx2
#include "wings/vision/data/images/kernels/picture_impl.h"
