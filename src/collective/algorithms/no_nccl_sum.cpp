// Stands in for nccl_sum.cpp where LibTorch has no NCCL.
#include "base/fail.h"
#include "collective/algorithms/cross_device_sum.h"

namespace cohort {

bool has_nccl_sum() {
  return false;
}

CrossDeviceSum make_nccl_sum() {
  fail<Unimplemented>("[collective] cross-device ops nccl: this build has no NCCL (COHORT_WITH_NCCL=OFF); use ring");
}

}  // namespace cohort
