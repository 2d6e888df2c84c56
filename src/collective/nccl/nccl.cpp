#include "collective/nccl/nccl.h"

#include <cstdlib>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "collective/nccl/c10d_communicator.h"

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

bool has_nccl() {
  return true;
}

std::unique_ptr<Communicator> make_nccl(const Meeting& meeting) {
  using Group = c10d::ProcessGroupNCCL;
  leave_errors_to_us();
  return std::make_unique<C10dCommunicator<Group>>("nccl", meeting, [](const Meeting& ranks) {
    auto options = Group::Options::create();
    options->timeout = 2 * ranks.timeout;  // ours comes first
    return c10::make_intrusive<Group>(c10::make_intrusive<MeetingStore>(ranks), ranks.rank, ranks.size,
                                      std::move(options));
  });
}

}  // namespace cohort
