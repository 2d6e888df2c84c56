// Layers, losses, metrics, Model and Controller, callbacks and actions, and checkpoints of loops of one's own.
#pragma once

#include "cohort/train/actions.h"              // IWYU pragma: export
#include "cohort/train/add_loss.h"             // IWYU pragma: export
#include "cohort/train/applications.h"         // IWYU pragma: export
#include "cohort/train/callbacks.h"            // IWYU pragma: export
#include "cohort/train/controller.h"           // IWYU pragma: export
#include "cohort/train/export.h"               // IWYU pragma: export
#include "cohort/train/functional.h"           // IWYU pragma: export
#include "cohort/train/keras_file.h"           // IWYU pragma: export
#include "cohort/train/layers.h"               // IWYU pragma: export
#include "cohort/train/loss.h"                 // IWYU pragma: export
#include "cohort/train/losses.h"               // IWYU pragma: export
#include "cohort/train/metric.h"               // IWYU pragma: export
#include "cohort/train/metrics.h"              // IWYU pragma: export
#include "cohort/train/metrics_server.h"       // IWYU pragma: export
#include "cohort/train/model.h"                // IWYU pragma: export
#include "cohort/train/model_trainer.h"        // IWYU pragma: export
#include "cohort/train/module_call.h"          // IWYU pragma: export
#include "cohort/train/more_callbacks.h"       // IWYU pragma: export
#include "cohort/train/plot_model.h"           // IWYU pragma: export
#include "cohort/train/script_module.h"        // IWYU pragma: export
#include "cohort/train/sidecar_evaluator.h"    // IWYU pragma: export
#include "cohort/train/summary.h"              // IWYU pragma: export
#include "cohort/train/text_vectorization.h"   // IWYU pragma: export
#include "cohort/train/training_checkpoint.h"  // IWYU pragma: export
#include "cohort/train/training_run.h"         // IWYU pragma: export
