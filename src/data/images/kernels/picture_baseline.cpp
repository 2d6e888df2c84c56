#define COHORT_ISA baseline
#include "data/images/kernels/picture_impl.h"
