// Stands in for nccl.cpp where LibTorch has no NCCL.
#include "base/fail.h"
#include "collective/ops/cross_device_ops.h"

namespace cohort {

bool has_nccl() {
  return false;
}

std::unique_ptr<CrossDeviceOps> make_nccl() {
  fail<Unimplemented>("[collective] cross-device ops nccl: this build has no NCCL (COHORT_WITH_NCCL=OFF); use ring");
}

}  // namespace cohort
