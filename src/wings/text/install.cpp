// Gives the core what this wing has.
#include "base/extension.h"
#include "wings/text/models/experiments.h"

namespace cohort {

void install_text() {
  for (const ExperimentGroup& each : text_experiments()) extend(each);
  for (const TaskKind& each : text_tasks()) extend(each);
}

}  // namespace cohort
