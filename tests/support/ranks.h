// Ranks as threads, for tests of collectives.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "collective/local/local.h"
#include "tests/support/rank_errors.h"

namespace cohort::testing {

struct RanksOptions {
  std::string_view ops = "ring";
  std::chrono::milliseconds timeout = std::chrono::seconds(20);
};

// Runs fn(communicator) on `size` threads of one local group; rethrows the first failure in rank order, after all
// ended.
inline void with_ranks(int size, const RanksOptions& options, const std::function<void(Communicator&)>& fn) {
  Rendezvous meeting(size, options.timeout, /*spin=*/size <= 2);
  const std::vector<torch::Device> devices(static_cast<std::size_t>(size), torch::kCPU);
  const CrossDeviceSum sum = make_cross_device_sum(options.ops, devices);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          fn(*make_local(meeting, sum, rank));
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
        meeting.leave(rank);
      });
    }
  }
  rethrow_first(errors);
}

inline void with_ranks(int size, const std::function<void(Communicator&)>& fn) {
  with_ranks(size, {}, fn);
}

}  // namespace cohort::testing
