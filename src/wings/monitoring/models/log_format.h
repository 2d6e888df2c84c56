// --log_format of `cohort train`.
#pragma once

#include "models/command/train_command.h"

namespace cohort {

RunObserverMaker log_format();

}  // namespace cohort
