// The lease of an agent: the right to run workers, which the leader gives with each of its answers. It ends earlier at
// the agent than at the leader, so that no worker of an earlier round runs when a later one begins.
#pragma once

#include <chrono>

namespace cohort::cli {

// The lease at the agent, from the moment at which it sent the last report that was answered. After that its workers
// are killed, by the launcher's guard if the launcher itself is stopped, and no worker of the round starts.
constexpr std::chrono::milliseconds kLeaseAtAgent = std::chrono::seconds(6);

// The lease at the leader, from the moment at which the last report came. The difference is for clocks that do not run
// at the same speed, and for the killing.
constexpr std::chrono::milliseconds kLeaseAtLeader = std::chrono::seconds(8);

static_assert(kLeaseAtAgent < kLeaseAtLeader);

}  // namespace cohort::cli
