#define COHORT_ISA avx512
#include "train/kernels/update_impl.h"
