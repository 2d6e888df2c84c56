#define COHORT_ISA avx512
#include "wings/vision/data/images/kernels/picture_impl.h"
