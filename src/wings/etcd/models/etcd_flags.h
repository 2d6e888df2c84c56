// --coordination.
#pragma once

#include "models/command/strategy_table.h"

namespace cohort {

FlagsOfWing etcd_flags();

}  // namespace cohort
