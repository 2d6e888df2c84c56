// PassageThreads: the threads of the passages, one each, which stay from one run to the next.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "wings/pipeline/strategy/passage.h"

namespace cohort {

// One thread at a time.
class PassageThreads {
 public:
  PassageThreads() = default;
  PassageThreads(const PassageThreads&) = delete;
  PassageThreads& operator=(const PassageThreads&) = delete;
  // A thread that is still in a function is left behind; that may be this one, which was the last to know the strategy.
  ~PassageThreads();

  // Has a passage served by a thread that is idle. Unavailable: no thread can be made.
  void begin(std::size_t number, std::shared_ptr<Passage> passage);
  // Waits until the first ones are idle; returns false if one is not in time.
  bool wait(std::size_t count, std::chrono::milliseconds limit);

 private:
  struct Desk;
  static void serve(const std::shared_ptr<Desk>& desk);

  std::vector<std::shared_ptr<Desk>> desks_;
  std::vector<std::thread> threads_;
};

}  // namespace cohort
