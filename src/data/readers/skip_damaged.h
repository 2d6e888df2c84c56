// Leaves out what is damaged, and counts it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/log.h"
#include "cohort/dataset.h"
#include "cohort/error.h"

namespace cohort {

// Copies share their count. Thread-safe.
class SkipDamaged {
 public:
  explicit SkipDamaged(bool skips) : skips_(skips) {}

  // Returns what read() returns, or nothing if that is damaged (DataLoss) or a picture of a size that is refused
  // (InvalidArgument), after a warning. Without skipping these errors are thrown.
  template <typename Read>
  auto operator()(const Read& read) const -> std::optional<decltype(read())> {
    if (!skips_) return read();
    try {
      return read();
    } catch (const DataLoss& error) {
      note(error);
    } catch (const InvalidArgument& error) {
      note(error);
    }
    return std::nullopt;
  }

  // Returns the dataset without the examples that have no x.
  Dataset without_empty(const Dataset& read) const {
    return skips_ ? read.filter([](const Example& example) { return example.x.defined(); }) : read;
  }

 private:
  void note(const Error& error) const { log().warn("{}; it is left out ({} so far)", error.what(), ++*skipped_); }

  bool skips_;
  std::shared_ptr<std::atomic<int64_t>> skipped_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace cohort
