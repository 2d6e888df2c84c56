#define COHORT_VARIANT avx2
#include "train/kernels/update_impl.h"
