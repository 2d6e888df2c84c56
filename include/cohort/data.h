// Files, images and data sets that are known by name; Dataset itself is in cohort/dataset.h.
#pragma once

#include "cohort/data/augment.h"          // IWYU pragma: export
#include "cohort/data/auto_augment.h"     // IWYU pragma: export
#include "cohort/data/datasets.h"         // IWYU pragma: export
#include "cohort/data/decode_options.h"   // IWYU pragma: export
#include "cohort/data/device_images.h"    // IWYU pragma: export
#include "cohort/data/image.h"            // IWYU pragma: export
#include "cohort/data/parse_example.h"    // IWYU pragma: export
#include "cohort/data/preprocess_ops.h"   // IWYU pragma: export
#include "cohort/data/tf_example.h"       // IWYU pragma: export
#include "cohort/data/tf_image.h"         // IWYU pragma: export
#include "cohort/data/tfds.h"             // IWYU pragma: export
#include "cohort/data/tfrecord.h"         // IWYU pragma: export
#include "cohort/data/tfrecord_writer.h"  // IWYU pragma: export
