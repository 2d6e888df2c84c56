// What this wing gives the core.
#include "base/extension.h"
#include "wings/vision/models/experiments.h"

namespace cohort {

void install_vision() {
  for (const ExperimentGroup& each : vision_experiments()) extend(each);
  for (const TaskKind& each : vision_tasks()) extend(each);
}

}  // namespace cohort
