#define COHORT_VARIANT baseline
#include "train/kernels/update_impl.h"
