// Everything that a program needs.
#pragma once

#include "cohort/checkpoint.h"           // IWYU pragma: export
#include "cohort/cluster.h"              // IWYU pragma: export
#include "cohort/communicator.h"         // IWYU pragma: export
#include "cohort/compute.h"              // IWYU pragma: export
#include "cohort/data.h"                 // IWYU pragma: export
#include "cohort/dataset.h"              // IWYU pragma: export
#include "cohort/device.h"               // IWYU pragma: export
#include "cohort/distributed_dataset.h"  // IWYU pragma: export
#include "cohort/error.h"                // IWYU pragma: export
#include "cohort/function.h"             // IWYU pragma: export
#include "cohort/models.h"               // IWYU pragma: export
#include "cohort/more_update_rules.h"    // IWYU pragma: export
#include "cohort/optimizer.h"            // IWYU pragma: export
#include "cohort/parallel.h"             // IWYU pragma: export
#include "cohort/preemption.h"           // IWYU pragma: export
#include "cohort/strategy.h"             // IWYU pragma: export
#include "cohort/trace.h"                // IWYU pragma: export
#include "cohort/train.h"                // IWYU pragma: export
#include "cohort/variable.h"             // IWYU pragma: export
#include "cohort/version.h"              // IWYU pragma: export
#include "cohort/weights.h"              // IWYU pragma: export
