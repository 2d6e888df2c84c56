#define COHORT_ISA cuda
#include "wings/vision/data/images/kernels/picture_impl.h"
