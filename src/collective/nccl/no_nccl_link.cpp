// Stands in for nccl_link.cpp where LibTorch has no CUDA, or NCCL's header is not there.
#include "base/fail.h"
#include "collective/nccl/nccl_link.h"

namespace cohort {

bool has_nccl_link() {
  return false;
}

std::unique_ptr<DeviceLink> make_nccl_link(const std::vector<torch::Device>& /*devices*/) {
  fail_unbuilt("[collective] nccl", "it takes LibTorch with CUDA and nccl.h");
}

}  // namespace cohort
