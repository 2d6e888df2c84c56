#include "collective/devices/nccl.h"

#include "base/extension.h"
#include "base/fail.h"

namespace cohort {

namespace {

const NcclMaker& maker_for(const char* what) {
  if (!has_nccl()) fail_unbuilt(what, "it takes the wing cuda, LibTorch with CUDA and nccl.h");
  return extensions<NcclMaker>().front();
}

}  // namespace

bool has_nccl() {
  return !extensions<NcclMaker>().empty();
}

std::unique_ptr<DeviceLink> make_nccl_link(const std::vector<torch::Device>& devices) {
  return maker_for("[collective] nccl").make_link(devices);
}

std::unique_ptr<Communicator> make_nccl(const Meeting& meeting) {
  return maker_for("[collective] nccl between processes").make_communicator(meeting);
}

}  // namespace cohort
