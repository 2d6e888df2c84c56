// What this wing gives the core.
#include "base/extension.h"
#include "wings/text/models/experiments.h"

namespace cohort {

void install_text() {
  for (const ExperimentGroup& each : text_experiments()) extend(each);
  for (const TaskKind& each : text_tasks()) extend(each);
}

}  // namespace cohort
