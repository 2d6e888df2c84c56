// The model zoo, and experiments that a configuration describes.
#pragma once

#include "cohort/models/config.h"                 // IWYU pragma: export
#include "cohort/models/experiment.h"             // IWYU pragma: export
#include "cohort/models/image_classification.h"   // IWYU pragma: export
#include "cohort/models/language_model.h"         // IWYU pragma: export
#include "cohort/models/layouts.h"                // IWYU pragma: export
#include "cohort/models/masked_language_model.h"  // IWYU pragma: export
#include "cohort/models/ranking.h"                // IWYU pragma: export
#include "cohort/models/semantic_segmentation.h"  // IWYU pragma: export
#include "cohort/models/setting.h"                // IWYU pragma: export
#include "cohort/models/strategy_flags.h"         // IWYU pragma: export
#include "cohort/models/zoo.h"                    // IWYU pragma: export
