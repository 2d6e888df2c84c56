// Stands in for nccl.cpp where LibTorch has no NCCL, or NCCL's header is not there.
#include "base/fail.h"
#include "collective/nccl/nccl.h"

namespace cohort {

bool has_nccl() {
  return false;
}

std::unique_ptr<Communicator> make_nccl(const Meeting& /*meeting*/) {
  fail_unbuilt("[collective] nccl between processes", "it takes LibTorch with CUDA and nccl.h");
}

}  // namespace cohort
