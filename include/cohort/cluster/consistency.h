// Consistency: how far the workers of a parameter-server run may be apart.
#pragma once

#include <cstdint>

namespace cohort {

// The way in which a parameter-server run keeps its workers together.
struct Consistency {
  // The three ways.
  enum class Kind {
    // A worker's gradients are applied when they come (the default).
    kAsynchronous,
    // The same, but a worker that is `staleness` steps ahead of the slowest one waits for it (Ho et al., "More
    // Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", 2013).
    kBoundedStaleness,
    // The shares of a step are added up and applied together; the next step begins when all of them are there. With
    // backup workers, work that others are still at is done twice, and what comes first counts (Chen et al.,
    // "Revisiting Distributed Synchronous SGD", 2016, drop the slowest gradients instead; here every example counts).
    kSynchronous,
  };

  Kind kind = Kind::kAsynchronous;  // the way in which workers are kept together
  // InvalidArgument: one of these is set with another kind than its own.
  int64_t staleness = 4;   // steps that a worker may be ahead of the slowest one, with kBoundedStaleness
  int backup_workers = 0;  // closures that two workers may run at a time, with kSynchronous
};

}  // namespace cohort
