// Layers of images and the like whose channels come last, as Keras has them.
#pragma once

#include "cohort/train/layers/layer.h"

namespace cohort {

// The layer for inputs [batch, ..., channels], of which it makes outputs [batch, ..., channels]; its weights keep their
// layout, and its name stays. The layer itself gets views [batch, channels, ...]. `activation` is applied to what is
// returned: a softmax is over the channels there. Softmaxes of the layer itself would be over the last place.
//   ChannelsLast(Conv2D({.filters = 32, .kernel_size = 3, .activation = "relu"}))
// InvalidArgument, when it is built: the input lacks the dimension of the channels, or the layer has buffers or
// modules.
Layer ChannelsLast(const Layer& layer, const Activation& activation = Activation::kLinear);

}  // namespace cohort
