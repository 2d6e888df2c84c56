// Sampler: what threads do, by looking at their stacks at random moments.
#pragma once

#include <sys/types.h>

#include <memory>
#include <ostream>
#include <vector>

namespace cohort::bench {

// Interrupts threads about every 500 us of real time and records their stacks, those of waiting threads too. A process
// has one at a time; the signal SIGPROF is its own.
class Sampler {
 public:
  // Begins to look at these threads of the process. std::system_error: the system has no timers for them.
  explicit Sampler(const std::vector<pid_t>& threads);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  ~Sampler();

  // Ends the looking. Writes {"libraries": [file, ...], "stacks": [[[library, address], ...], ...]}: each stack from
  // the innermost function on, each address as it stands in its library's file, those of no library as [-1, 0].
  void finish(std::ostream& out);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::bench
