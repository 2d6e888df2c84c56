// All losses. cohort/train/loss.h says what a Loss is.
#pragma once

#include "cohort/train/basic_losses.h"  // IWYU pragma: export
#include "cohort/train/loss.h"          // IWYU pragma: export
#include "cohort/train/more_losses.h"   // IWYU pragma: export
