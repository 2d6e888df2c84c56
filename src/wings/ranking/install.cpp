// Gives the core what this wing has.
#include "base/extension.h"
#include "wings/ranking/models/experiments.h"

namespace cohort {

void install_ranking() {
  for (const ExperimentGroup& each : ranking_experiments()) extend(each);
  for (const TaskKind& each : ranking_tasks()) extend(each);
}

}  // namespace cohort
