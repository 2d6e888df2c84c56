#include "collective/nccl/nccl_group.h"

#include <cstdlib>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace cohort {

namespace {

// A worker that is lost is reported by us, by name, and the program may go on; what the user has set stands.
void leave_errors_to_us() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const auto& [name, value] : compat::kNcclLeavesErrorsToUs) ::setenv(name, value, /*overwrite=*/0);
  });
}

}  // namespace

bool has_nccl_group() {
  return true;
}

std::unique_ptr<DeviceGroup> make_nccl_group(const GroupMeeting& meeting) {
  using Group = c10d::ProcessGroupNCCL;
  leave_errors_to_us();
  auto options = Group::Options::create();
  options->timeout = 2 * meeting.timeout;  // ours comes first
  auto group = c10::make_intrusive<Group>(c10::make_intrusive<MeetingStore>(meeting), meeting.rank, meeting.size,
                                          std::move(options));
  return std::make_unique<C10dGroup<Group>>("nccl", torch::kCUDA, std::move(group), meeting.timeout);
}

}  // namespace cohort
