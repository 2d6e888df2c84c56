// Everything that a program needs.
#pragma once

#include "cohort/callbacks.h"                  // IWYU pragma: export
#include "cohort/checkpoint.h"                 // IWYU pragma: export
#include "cohort/cluster_coordinator.h"        // IWYU pragma: export
#include "cohort/communicator.h"               // IWYU pragma: export
#include "cohort/dataset.h"                    // IWYU pragma: export
#include "cohort/datasets.h"                   // IWYU pragma: export
#include "cohort/device.h"                     // IWYU pragma: export
#include "cohort/distributed_dataset.h"        // IWYU pragma: export
#include "cohort/error.h"                      // IWYU pragma: export
#include "cohort/image.h"                      // IWYU pragma: export
#include "cohort/layers.h"                     // IWYU pragma: export
#include "cohort/losses.h"                     // IWYU pragma: export
#include "cohort/metrics.h"                    // IWYU pragma: export
#include "cohort/model.h"                      // IWYU pragma: export
#include "cohort/multi_worker_strategy.h"      // IWYU pragma: export
#include "cohort/optimizer.h"                  // IWYU pragma: export
#include "cohort/parameter_server_strategy.h"  // IWYU pragma: export
#include "cohort/preemption.h"                 // IWYU pragma: export
#include "cohort/sidecar_evaluator.h"          // IWYU pragma: export
#include "cohort/strategy.h"                   // IWYU pragma: export
#include "cohort/tfrecord.h"                   // IWYU pragma: export
#include "cohort/training_run.h"               // IWYU pragma: export
#include "cohort/variable.h"                   // IWYU pragma: export
#include "cohort/weights.h"                    // IWYU pragma: export
