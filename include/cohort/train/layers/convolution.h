// The convolution of images. Defaults are Keras', tensors LibTorch's: the channels come before the places.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/train/layers/layer.h"

namespace cohort {

struct Conv2DOptions {
  int64_t filters = 0;                                           // channels of the output; needed
  Size2 kernel_size = 0;                                         // needed
  Size2 strides = 1;                                             // step of the kernel
  Padding padding = Padding::kValid;                             // the border around the image
  Size2 dilation_rate = 1;                                       // not together with strides above 1
  int64_t groups = 1;                                            // divides the channels of input and output
  Activation activation = Activation::kLinear;                   // applied to the output
  bool use_bias = true;                                          // a bias is added
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // the initial values of the weight
  Initializer bias_initializer = Initializer::kZeros;            // the initial values of the bias
  Regularizer kernel_regularizer = {};                           // the weight's cost in the loss
  Regularizer bias_regularizer = {};                             // the bias' cost in the loss
  Constraint kernel_constraint = {};                             // the condition of the weight after each update
  Constraint bias_constraint = {};                               // the condition of the bias after each update
  std::string name = {};                                         // empty: the model gives one
  bool trainable = true;                                         // its parameters learn
};
// [batch, channels, height, width] -> [batch, filters, height', width']. Images without a channel dimension
// ([batch, height, width], as MNIST's) count as having one channel.
Layer Conv2D(const Conv2DOptions& options);
Layer Conv2D(int64_t filters, Size2 kernel_size, const Activation& activation = Activation::kLinear);

}  // namespace cohort
