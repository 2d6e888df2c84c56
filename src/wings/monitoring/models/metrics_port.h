// The flag --metrics_port.
#pragma once

#include "models/command/run_observer.h"

namespace cohort {

RunObserverMaker metrics_port();

}  // namespace cohort
