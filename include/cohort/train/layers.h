// Layers: values that describe a layer; a model builds a torch::nn::Module from each, once a replica, when it knows the
// shape of its input.
//
//   cohort::Sequential model{Flatten(), Dense(256, Activation::kRelu), Dense(10)};
//   cohort::Sequential cnn{Conv2D({.filters = 32, .kernel_size = 3}), MaxPooling2D(), Flatten(), Dense(10)};
//
// Defaults are those of Keras; tensors are those of LibTorch: images are [batch, channels, height, width], the weight
// of Dense is [units, inputs], that of Conv2D [filters, channels / groups, height, width]. So the parameters
// ("dense.weight", "dense.bias") load into a PyTorch nn.Sequential whose modules have the layers' names.
//
// Shapes here leave the batch out; -1 stands for a dimension that is not known yet. Options that make no sense are
// InvalidArgument when the layer is described; an input that does not fit is InvalidArgument, naming the layer, when it
// is built or called. All layers take batches of no examples.
#pragma once

#include "cohort/train/layers/activation.h"           // IWYU pragma: export
#include "cohort/train/layers/adaptive_pooling.h"     // IWYU pragma: export
#include "cohort/train/layers/attention.h"            // IWYU pragma: export
#include "cohort/train/layers/basic.h"                // IWYU pragma: export
#include "cohort/train/layers/channels_last.h"        // IWYU pragma: export
#include "cohort/train/layers/checkpointed.h"         // IWYU pragma: export
#include "cohort/train/layers/convolution.h"          // IWYU pragma: export
#include "cohort/train/layers/dot_attention.h"        // IWYU pragma: export
#include "cohort/train/layers/dtype_policy.h"         // IWYU pragma: export
#include "cohort/train/layers/foreign.h"              // IWYU pragma: export
#include "cohort/train/layers/graph_layer.h"          // IWYU pragma: export
#include "cohort/train/layers/initializer.h"          // IWYU pragma: export
#include "cohort/train/layers/layer.h"                // IWYU pragma: export
#include "cohort/train/layers/layer_normalization.h"  // IWYU pragma: export
#include "cohort/train/layers/merging.h"              // IWYU pragma: export
#include "cohort/train/layers/more_activations.h"     // IWYU pragma: export
#include "cohort/train/layers/more_convolutions.h"    // IWYU pragma: export
#include "cohort/train/layers/noise.h"                // IWYU pragma: export
#include "cohort/train/layers/normalization.h"        // IWYU pragma: export
#include "cohort/train/layers/pooling.h"              // IWYU pragma: export
#include "cohort/train/layers/pooling_1d.h"           // IWYU pragma: export
#include "cohort/train/layers/pooling_3d.h"           // IWYU pragma: export
#include "cohort/train/layers/preprocessing.h"        // IWYU pragma: export
#include "cohort/train/layers/random_images.h"        // IWYU pragma: export
#include "cohort/train/layers/rearranging.h"          // IWYU pragma: export
#include "cohort/train/layers/recurrent.h"            // IWYU pragma: export
#include "cohort/train/layers/relu.h"                 // IWYU pragma: export
#include "cohort/train/layers/remat.h"                // IWYU pragma: export
#include "cohort/train/layers/resampling.h"           // IWYU pragma: export
#include "cohort/train/layers/rnn.h"                  // IWYU pragma: export
#include "cohort/train/layers/sequences.h"            // IWYU pragma: export
#include "cohort/train/layers/stage.h"                // IWYU pragma: export
