#define COHORT_ISA baseline
#include "train/kernels/update_impl.h"
