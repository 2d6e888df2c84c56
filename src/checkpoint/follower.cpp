#include <thread>

#include "base/deadline.h"
#include "base/fail.h"
#include "checkpoint/series.h"
#include "cohort/checkpoint.h"

namespace cohort {

std::string finished_run(const std::filesystem::path& directory) {
  const CheckpointPointer pointer = read_pointer(directory);
  return pointer.finished ? pointer.run : "";
}

CheckpointFollower::CheckpointFollower(std::filesystem::path directory, const CheckpointFollowerOptions& options)
    : directory_(std::move(directory)), options_(options) {}

std::optional<std::filesystem::path> CheckpointFollower::next() {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const CheckpointPointer pointer =
        read_pointer(directory_);  // it is read before the steps, so that the last one is not missed
    if (!pointer.finished || options_.skip_run.empty() || pointer.run != options_.skip_run) {
      const std::vector<int64_t> steps = checkpoint_steps(directory_, options_.name);
      if (!steps.empty() && steps.back() > last_) {
        last_ = steps.back();
        return directory_ / (options_.name + "-" + std::to_string(last_));
      }
      if (pointer.finished) return std::nullopt;
    }
    if (std::chrono::steady_clock::now() - begin >= options_.timeout) {
      fail<DeadlineExceeded>("[checkpoint] waited ", to_text(options_.timeout), " for a new checkpoint in ",
                             directory_.string());
    }
    std::this_thread::sleep_for(options_.poll);
  }
}

}  // namespace cohort
