// The flags of this wing.
#pragma once

#include "models/command/strategy_table.h"

namespace cohort {

// InvalidArgument: power_sgd or local steps are spoken of, and there are none.
FlagsOfWing comm_hook_flags();

}  // namespace cohort
