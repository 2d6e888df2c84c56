// The layout of images and of what convolves them. On GPUs convolutions are fastest with the channels last in memory;
// with kernels that lie so, too, nothing has to be laid out again in a step.
#pragma once

#include <torch/nn/module.h>

namespace cohort {

// Base of modules that compute with the channels of images last in memory.
class ChannelsLast {
 public:
  virtual ~ChannelsLast() = default;
  // Returns whether the module was made to.
  virtual bool channels_last() const = 0;
};

// Lays out the kernels of two-dimensional convolutions, which are the parameters of four dimensions, with the channels
// last, in a module that is a ChannelsLast and in those within it. Optimizers and checkpoints keep the layout.
void lay_out_channels_last(torch::nn::Module& module);

}  // namespace cohort
