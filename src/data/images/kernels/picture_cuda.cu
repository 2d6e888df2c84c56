#define COHORT_ISA cuda
#include "data/images/kernels/picture_impl.h"
