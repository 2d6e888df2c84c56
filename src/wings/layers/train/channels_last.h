// The parts that ChannelsLast was made of.
#pragma once

#include "cohort/train/layers/channels_last.h"

namespace cohort {

struct ChannelsLastParts {
  Layer layer;
  Activation activation;
};

}  // namespace cohort
