#pragma once

#include "train/controller/moving_average.h"

namespace cohort {

// As AverageRecorder has it.
bool record_average(const AverageUpdate& update);

}  // namespace cohort
