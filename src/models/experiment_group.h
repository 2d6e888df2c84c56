// The experiments and tasks of wings, which are extensions.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/extension.h"
#include "cohort/models/experiment.h"

namespace cohort {

// Experiments that stand next to each other in lists.
struct ExperimentGroup {
  const char* wing;
  int place;  // in lists
  std::vector<Experiment> (*make)();
  // Returns a sentence that says why there is no experiment of a name, if it should be in this group; else an empty
  // text.
  std::string (*why_missing)(std::string_view name) = nullptr;
};

// A task with its defaults, for lists of all keys.
struct TaskKind {
  const char* name;  // that its keys begin with
  int place;         // in lists
  std::shared_ptr<Task> (*make)();
};

// Returns the extensions in the order of their places.
template <typename T>
std::vector<T> by_place() {
  std::vector<T> list = extensions<T>();
  std::stable_sort(list.begin(), list.end(), [](const T& a, const T& b) { return a.place < b.place; });
  return list;
}

// Returns the settings that the library's own experiments begin with, whose intervals are epochs.
inline TrainerConfig trainer_by_epochs() {
  return {.train_epochs = 5,
          .steps_per_loop = 0,
          .summary_interval = 0,
          .checkpoint_interval = 0,
          .validation_interval = 0};
}

}  // namespace cohort
