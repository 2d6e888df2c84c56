#define COHORT_ISA baseline
#include "base/kernels/vector_body.inc"
