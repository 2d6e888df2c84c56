// Gives the core what this wing has.
#include "base/extension.h"
#include "wings/metrics/train/names.h"

namespace cohort {

void install_metrics() {
  for (const Named<Loss>& each : named_losses()) extend(each);
  for (const Named<Metric>& each : named_metrics()) extend(each);
}

}  // namespace cohort
