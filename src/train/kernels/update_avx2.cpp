#define COHORT_ISA avx2
#include "train/kernels/update_impl.h"
