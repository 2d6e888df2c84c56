// All metrics. cohort/train/metric.h says what a Metric is. A loss is a metric, too.
#pragma once

#include "cohort/train/basic_metrics.h"  // IWYU pragma: export
#include "cohort/train/iou.h"            // IWYU pragma: export
#include "cohort/train/losses.h"         // IWYU pragma: export
#include "cohort/train/metric.h"         // IWYU pragma: export
#include "cohort/train/more_metrics.h"   // IWYU pragma: export
