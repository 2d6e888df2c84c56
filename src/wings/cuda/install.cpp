// Gives the core what this wing has.
#include "base/extension.h"
#include "device/backend.h"
#include "wings/cuda/collective/nccl/maker.h"
#include "wings/cuda/device/cuda.h"

namespace cohort {

void install_cuda() {
  extend(BackendMaker{make_cuda_backend});
  if (const std::optional<NcclMaker> nccl = nccl_maker()) extend(*nccl);
}

}  // namespace cohort
