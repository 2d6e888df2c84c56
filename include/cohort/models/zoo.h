// The models of the zoo, each in the header of its kind.
#pragma once

#include "cohort/models/dlrm.h"          // IWYU pragma: export
#include "cohort/models/image_models.h"  // IWYU pragma: export
#include "cohort/models/named_module.h"  // IWYU pragma: export
#include "cohort/models/text_models.h"   // IWYU pragma: export
