#include "collective/nccl/nccl_group.h"

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace cohort {

bool has_nccl_group() {
  return true;
}

std::unique_ptr<DeviceGroup> make_nccl_group(const GroupMeeting& meeting) {
  using Group = c10d::ProcessGroupNCCL;
  auto options = Group::Options::create();
  options->timeout = meeting.timeout;
  auto group = c10::make_intrusive<Group>(c10::make_intrusive<MeetingStore>(meeting), meeting.rank, meeting.size,
                                          std::move(options));
  return std::make_unique<C10dGroup<Group>>("nccl", torch::kCUDA, std::move(group), meeting.timeout);
}

}  // namespace cohort
