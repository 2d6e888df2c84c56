// Where the examples of a task come from, which the tasks decide alike: from a place for training, of which a part is
// held out for validation or that has another place beside it; or drawn ones, without a place.
#pragma once

#include <string>

#include "base/fail.h"
#include "cohort/data/datasets.h"
#include "cohort/dataset.h"
#include "models/run/local_place.h"

namespace cohort {

struct TaskSource {
  Dataset train;
  Dataset validation;
  std::string description;
};

// Returns the batches, made so many ahead; negative: as many as it takes.
inline Dataset ahead(const Dataset& batches, int64_t count) {
  return count == 0 ? batches : batches.prefetch(count < 0 ? kAuto : count);
}

struct SourceNames {
  const char* missing;  // what there is without a place: "there is no text"
  const char* builtin;  // the value of the task's builtin_data for which examples can be drawn
};

// Opens the data of a task: open(place, data, held_out) those at a place, for one of the task's two configurations, as
// TrainTest; draw() returns the drawn ones. Without `training` validation data are enough, which then stand for both.
// InvalidArgument: there is no place, and nothing can be drawn.
template <typename Task, typename Open, typename Draw>
TaskSource open_source(const Task& task, bool training, const SourceNames& names, const Open& open, const Draw& draw) {
  const std::string& place = task.train_data.input_path;
  const std::string& other = task.validation_data.input_path;
  require_local("[task] task.train_data.input_path (--data_dir)", place);
  require_local("[task] task.validation_data.input_path", other);
  if (place.empty() && !training && !other.empty()) {  // an evaluation needs no training data
    const Dataset all = open(other, task.validation_data, 0.0).train;
    return {.train = all, .validation = all, .description = other};
  }
  if (place.empty() && other.empty() && task.builtin_data == names.builtin) {
    const datasets::TrainTest drawn = draw();
    return {.train = drawn.train, .validation = drawn.test, .description = std::string("drawn ") + names.builtin};
  }
  if (place.empty()) {
    fail<InvalidArgument>("[task] ", names.missing, ": --data_dir (task.train_data.input_path) is empty");
  }
  if (other.empty()) {
    const datasets::TrainTest parts = open(place, task.train_data, task.train_data.held_out);
    return {.train = parts.train, .validation = parts.test, .description = place};
  }
  return {.train = open(place, task.train_data, 0.0).train,
          .validation = open(other, task.validation_data, 0.0).train,
          .description = place + ", validated with " + other};
}

}  // namespace cohort
