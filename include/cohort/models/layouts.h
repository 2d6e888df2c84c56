// Ready-made layouts, each in the header of its model: which parameters a mesh cuts, and where a pipeline cuts layers.
#pragma once

#include "cohort/models/pipeline_cut.h"  // IWYU pragma: export
#include "cohort/models/zoo.h"           // IWYU pragma: export
