#include <thread>

#include "base/deadline.h"
#include "base/fail.h"
#include "checkpoint/series.h"
#include "cohort/checkpoint.h"

namespace cohort {

CheckpointFollower::CheckpointFollower(std::filesystem::path directory, const CheckpointFollowerOptions& options)
    : directory_(std::move(directory)), options_(options) {
  if (options_.skip_finished && read_pointer(directory_).finished) {
    skipped_ = checkpoint_steps(directory_, options_.name);
  }
}

std::optional<std::filesystem::path> CheckpointFollower::next() {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const bool finished = read_pointer(directory_).finished;  // before the steps, so that the last one is not missed
    const std::vector<int64_t> steps = checkpoint_steps(directory_, options_.name);
    if (skipped_ && !(finished && steps == *skipped_)) skipped_.reset();
    if (!skipped_) {
      if (!steps.empty() && steps.back() > last_) {
        last_ = steps.back();
        return directory_ / (options_.name + "-" + std::to_string(last_));
      }
      if (finished) return std::nullopt;
    }
    if (std::chrono::steady_clock::now() - begin >= options_.timeout) {
      fail<DeadlineExceeded>("[checkpoint] waited ", to_text(options_.timeout), " for a new checkpoint in ",
                             directory_.string());
    }
    std::this_thread::sleep_for(options_.poll);
  }
}

}  // namespace cohort
