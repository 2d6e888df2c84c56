// PerWorkerDataset: a dataset that each worker of a ParameterServerStrategy reads for itself.
#pragma once

#include <memory>
#include <optional>

#include "cohort/example.h"

namespace cohort {

class PerWorkerSource;

// This is a handle, for scheduled steps, outside run(). A worker's dataset is made when it is first asked for, and
// again by a worker that is started again: a step that is run twice does not get the same elements, so that examples of
// a lost worker may be missing or come twice. Where every example counts once, let the chief read and schedule.
class PerWorkerDataset {
 public:
  PerWorkerDataset() = default;
  explicit PerWorkerDataset(std::shared_ptr<PerWorkerSource> source) : source_(std::move(source)) {}

  // Returns this worker's next element; nullopt at the end of a pass, after which the next pass begins (with the next
  // epoch's order). FailedPrecondition: this process is not a worker.
  std::optional<Example> next() const;

 private:
  std::shared_ptr<PerWorkerSource> source_;
};

}  // namespace cohort
