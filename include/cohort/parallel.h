// Meshes of devices and pipelines of one process; those of several are in cohort/cluster.h.
#pragma once

#include "cohort/parallel/axes.h"               // IWYU pragma: export
#include "cohort/parallel/mesh_strategy.h"      // IWYU pragma: export
#include "cohort/parallel/pipeline_schedule.h"  // IWYU pragma: export
#include "cohort/parallel/pipeline_strategy.h"  // IWYU pragma: export
#include "cohort/parallel/stages.h"             // IWYU pragma: export
