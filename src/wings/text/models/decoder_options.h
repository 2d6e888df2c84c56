// The checks of a decoder's options.
#pragma once

#include "cohort/models/text_models.h"

namespace cohort::models {

// Returns the options with numbers for head_dim and num_kv_heads. InvalidArgument names one that makes no sense.
DecoderOptions checked(DecoderOptions options);

}  // namespace cohort::models
