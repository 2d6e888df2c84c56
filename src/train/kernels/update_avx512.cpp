#define COHORT_VARIANT avx512
#include "train/kernels/update_impl.h"
