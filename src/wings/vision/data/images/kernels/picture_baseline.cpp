#define COHORT_ISA baseline
#include "wings/vision/data/images/kernels/picture_impl.h"
