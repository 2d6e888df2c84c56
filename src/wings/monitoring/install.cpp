#include "base/extension.h"
#include "wings/monitoring/models/metrics_port.h"

namespace cohort {

void install_monitoring() {
  extend(metrics_port());
}

}  // namespace cohort
