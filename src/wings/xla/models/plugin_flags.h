// The strategies tpu and xla by their names, and their flags.
#pragma once

#include "models/command/strategy_table.h"

namespace cohort {

StrategyRow tpu_row();
StrategyRow xla_row();
FlagsOfWing plugin_flags();

}  // namespace cohort
