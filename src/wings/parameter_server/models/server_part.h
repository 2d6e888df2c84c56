// The part of a process in a run of an experiment with parameter servers.
#pragma once

#include "models/run/part.h"

namespace cohort {

PartMaker part_among_servers();

}  // namespace cohort
