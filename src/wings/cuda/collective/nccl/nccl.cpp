// NCCL between processes, as LibTorch has it.

#include <cstdlib>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "wings/cuda/collective/nccl/c10d_communicator.h"
#include "wings/cuda/collective/nccl/maker.h"
#include "wings/cuda/collective/nccl/nccl_link.h"

namespace cohort {

namespace {

// A worker that is lost is reported by us, by name, and the program may go on; what the user has set stands.
void leave_errors_to_us() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const auto& [name, value] : compat::kNcclLeavesErrorsToUs) ::setenv(name, value, /*overwrite=*/0);
  });
}

std::unique_ptr<Communicator> between_processes(const Meeting& meeting) {
  using Group = c10d::ProcessGroupNCCL;
  leave_errors_to_us();
  return std::make_unique<C10dCommunicator<Group>>("nccl", meeting, [](const Meeting& ranks) {
    auto options = Group::Options::create();
    options->timeout = 2 * ranks.timeout;  // ours comes first
    return c10::make_intrusive<Group>(c10::make_intrusive<MeetingStore>(ranks), ranks.rank, ranks.size,
                                      std::move(options));
  });
}

}  // namespace

std::optional<NcclMaker> nccl_maker() {
  return NcclMaker{.make_link = link_by_nccl, .make_communicator = between_processes};
}

}  // namespace cohort
