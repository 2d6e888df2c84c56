// WatchedBackward: a backward pass that tells of the gradient of each parameter as soon as it is complete, so that it
// can leave while those of earlier layers are still being computed.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/libtorch_compat.h"
#include "step/flat_parameters.h"

namespace cohort {

// Returns a time span as an ExchangeTimeline has it.
inline double in_seconds(std::chrono::steady_clock::duration span) {
  return std::chrono::duration<double>(span).count();
}

class WatchedBackward {
 public:
  // Called with the local replica and the parameter, in the thread that computes the gradient, which lies in the
  // parameter then. An exception of it ends the pass and comes out of run().
  using Came = std::function<void(int local_id, std::size_t parameter)>;

  WatchedBackward(FlatParameters& flat, Came came);
  WatchedBackward(const WatchedBackward&) = delete;
  WatchedBackward& operator=(const WatchedBackward&) = delete;

  // Runs the backward pass of a local replica. Each replica has a thread; backward passes elsewhere are not watched.
  void run(int local_id, const torch::Tensor& loss);

 private:
  struct Watch {
    Came came;
    std::vector<char> on;  // [replica]: its backward runs
  };
  using Accumulators = std::vector<compat::GradAccumulator>;

  // Hooks into the gradients of a replica's parameters, as long as somebody has the watch. Returns what holds the
  // hooks.
  Accumulators hook(int local_id, const std::shared_ptr<Watch>& watch) const;

  FlatParameters& flat_;
  std::shared_ptr<Watch> watch_;  // the hooks look here, because they may outlive this object
  Accumulators accumulators_;     // of parameters of the host
  bool hooks_each_pass_;
};

}  // namespace cohort
