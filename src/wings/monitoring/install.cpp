#include "base/extension.h"
#include "wings/monitoring/models/log_format.h"
#include "wings/monitoring/models/metrics_port.h"

namespace cohort {

void install_monitoring() {
  extend(log_format());
  extend(metrics_port());
}

}  // namespace cohort
