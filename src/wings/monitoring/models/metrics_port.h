// The flag --metrics_port.
#pragma once

#include "models/command/train_command.h"

namespace cohort {

RunObserverMaker metrics_port();

}  // namespace cohort
