#define COHORT_ISA baseline
#include "wings/vision/data/images/kernels/pixel_impl.h"
