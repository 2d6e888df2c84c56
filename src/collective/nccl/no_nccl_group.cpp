// Stands in for nccl_group.cpp where LibTorch has no NCCL, or NCCL's header is not there.
#include "base/fail.h"
#include "collective/nccl/nccl_group.h"

namespace cohort {

bool has_nccl_group() {
  return false;
}

std::unique_ptr<DeviceGroup> make_nccl_group(const GroupMeeting& /*meeting*/) {
  fail<Unimplemented>("[collective] nccl: this build has none between processes");
}

}  // namespace cohort
