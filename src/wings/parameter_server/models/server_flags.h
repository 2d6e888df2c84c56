// The strategy parameter_server by its name, and its flags.
#pragma once

#include "models/command/strategy_table.h"

namespace cohort {

StrategyRow server_row();
FlagsOfWing server_flags();

}  // namespace cohort
