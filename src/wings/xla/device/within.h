// Calls into a plugin that may take long, such as a compilation, with a deadline.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "base/wait_reporting.h"

namespace cohort {

// Calls the function on a thread of its own and returns its result or throws what it throws. A call cannot be ended
// from outside: one that takes longer than the limit throws DeadlineExceeded, "[xla] this process waited 10 s for
// WHAT", and goes on alone. So the function has to own all that it uses. While it runs, the log says so every half a
// minute, and `look` is called a few times in a second: what it throws ends the wait.
template <typename Result, typename Fn>
Result within(std::chrono::milliseconds limit, const std::string& what, Fn fn,
              const std::function<void()>& look = nullptr) {
  std::packaged_task<Result()> task(std::move(fn));
  std::future<Result> result = task.get_future();
  std::thread caller(std::move(task));
  constexpr std::chrono::seconds kReport(30);
  constexpr std::chrono::milliseconds kLook(200);
  const WaitOptions options{.who = "[xla] this process", .limit = limit, .report_interval = kReport};
  try {
    wait_reporting(options, [&](const Deadline& deadline) {
      if (look) look();
      const auto pause = std::min<std::chrono::milliseconds>(deadline.left(), look ? kLook : kReport);
      return result.wait_for(pause) == std::future_status::ready ? std::string() : what;
    });
  } catch (...) {
    caller.detach();
    throw;
  }
  caller.join();  // it is about to end, and with it what the function owns
  return result.get();
}

}  // namespace cohort
