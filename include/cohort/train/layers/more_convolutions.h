// Convolutions beyond Conv2D: depthwise, separable, transposed, of sequences and of volumes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/train/layers/layer.h"

namespace cohort {

struct DepthwiseConv2DOptions {
  Size2 kernel_size = 0;                                            // needed
  Size2 strides = 1;                                                // step of the kernel
  Padding padding = Padding::kValid;                                // the border around the image
  int64_t depth_multiplier = 1;                                     // output channels an input channel
  Size2 dilation_rate = 1;                                          // not together with strides above 1
  Activation activation = Activation::kLinear;                      // applied to the output
  bool use_bias = true;                                             // a bias is added
  Initializer depthwise_initializer = Initializer::kGlorotUniform;  // the initial values of the weight
  Initializer bias_initializer = Initializer::kZeros;               // the initial values of the biases
  Regularizer depthwise_regularizer = {};                           // the weight's cost in the loss
  Regularizer bias_regularizer = {};                                // the biases' cost in the loss
  Constraint depthwise_constraint = {};                             // the condition of the weight after each update
  Constraint bias_constraint = {};                                  // the condition of the biases after each update
  std::string name = {};                                            // empty: the model gives one
  bool trainable = true;                                            // its parameters learn
};
// A convolution of each channel by itself, otherwise as Conv2D; weight [channels * depth_multiplier, 1, height, width].
Layer DepthwiseConv2D(const DepthwiseConv2DOptions& options);

struct SeparableConv2DOptions {
  int64_t filters = 0;                                              // channels of the output; needed
  Size2 kernel_size = 0;                                            // needed
  Size2 strides = 1;                                                // step of the kernel
  Padding padding = Padding::kValid;                                // the border around the image
  int64_t depth_multiplier = 1;                                     // channels between the two steps, an input channel
  Size2 dilation_rate = 1;                                          // not together with strides above 1
  Activation activation = Activation::kLinear;                      // applied to the output
  bool use_bias = true;                                             // a bias is added
  Initializer depthwise_initializer = Initializer::kGlorotUniform;  // the initial values of the first weight
  Initializer pointwise_initializer = Initializer::kGlorotUniform;  // the initial values of the second weight
  Initializer bias_initializer = Initializer::kZeros;               // the initial values of the bias
  Regularizer depthwise_regularizer = {};                           // the first weight's cost in the loss
  Regularizer pointwise_regularizer = {};                           // the second weight's cost in the loss
  Regularizer bias_regularizer = {};                                // the bias' cost in the loss
  Constraint depthwise_constraint = {};  // the condition of the first weight after each update
  Constraint pointwise_constraint = {};  // the condition of the second weight after each update
  Constraint bias_constraint = {};       // the condition of the bias after each update
  std::string name = {};                 // empty: the model gives one
  bool trainable = true;                 // its parameters learn
};
// Each channel by itself, then a mixture of the channels at each place; depthwise_weight [channels * depth_multiplier,
// 1, height, width], pointwise_weight [filters, channels * depth_multiplier, 1, 1], bias [filters].
Layer SeparableConv2D(const SeparableConv2DOptions& options);

struct Conv2DTransposeOptions {
  int64_t filters = 0;                // channels of the output; needed
  Size2 kernel_size = 0;              // needed
  Size2 strides = 1;                  // the number of outputs that an input stands for
  Padding padding = Padding::kValid;  // kSame: input * strides outputs
  std::optional<Size2> output_padding =
      std::nullopt;                             // more outputs at the end, fewer than strides; unset: Keras' size
  Size2 dilation_rate = 1;                      // not together with strides above 1
  Activation activation = Activation::kLinear;  // applied to the output
  bool use_bias = true;                         // a bias is added
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // the initial values of the weight
  Initializer bias_initializer = Initializer::kZeros;            // the initial values of the bias
  Regularizer kernel_regularizer = {};                           // the weight's cost in the loss
  Regularizer bias_regularizer = {};                             // the bias' cost in the loss
  Constraint kernel_constraint = {};                             // the condition of the weight after each update
  Constraint bias_constraint = {};                               // the condition of the bias after each update
  std::string name = {};                                         // empty: the model gives one
  bool trainable = true;                                         // its parameters learn
};
// The gradient of Conv2D as a layer: [batch, channels, height, width] -> [batch, filters, height', width']; weight
// [channels, filters, height, width].
Layer Conv2DTranspose(const Conv2DTransposeOptions& options);

struct Conv1DOptions {
  int64_t filters = 0;                                           // channels of the output; needed
  int64_t kernel_size = 0;                                       // needed
  int64_t strides = 1;                                           // step of the kernel
  Padding padding = Padding::kValid;                             // kCausal: an output sees no later input
  int64_t dilation_rate = 1;                                     // not together with strides above 1
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
// [batch, channels, length] -> [batch, filters, length']; weight [filters, channels / groups, length]. Sequences
// [batch, steps, channels] need a Permute({2, 1}) before it.
Layer Conv1D(const Conv1DOptions& options);

// Depth, height and width; one number stands for all.
struct Size3 {
  // The same number for all.
  Size3(int64_t all) : depth(all), height(all), width(all) {}  // NOLINT(google-explicit-constructor)
  // A number for each.
  Size3(int64_t depth, int64_t height, int64_t width) : depth(depth), height(height), width(width) {}
  bool operator==(const Size3&) const = default;

  int64_t depth;   // slices
  int64_t height;  // rows
  int64_t width;   // columns
};

struct Conv3DOptions {
  int64_t filters = 0;                                           // channels of the output; needed
  Size3 kernel_size = 0;                                         // needed
  Size3 strides = 1;                                             // step of the kernel
  Padding padding = Padding::kValid;                             // the border around the volume
  Size3 dilation_rate = 1;                                       // not together with strides above 1
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
// [batch, channels, depth, height, width] -> [batch, filters, depth', height', width']; weight [filters, channels /
// groups, depth, height, width].
Layer Conv3D(const Conv3DOptions& options);

struct Conv1DTransposeOptions {
  int64_t filters = 0;                // channels of the output; needed
  int64_t kernel_size = 0;            // needed
  int64_t strides = 1;                // the number of outputs that an input stands for
  Padding padding = Padding::kValid;  // kSame: input * strides outputs
  std::optional<int64_t> output_padding =
      std::nullopt;                             // more outputs at the end, fewer than strides; unset: Keras' size
  int64_t dilation_rate = 1;                    // not together with strides above 1
  Activation activation = Activation::kLinear;  // applied to the output
  bool use_bias = true;                         // a bias is added
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // the initial values of the weight
  Initializer bias_initializer = Initializer::kZeros;            // the initial values of the bias
  Regularizer kernel_regularizer = {};                           // the weight's cost in the loss
  Regularizer bias_regularizer = {};                             // the bias' cost in the loss
  Constraint kernel_constraint = {};                             // the condition of the weight after each update
  Constraint bias_constraint = {};                               // the condition of the bias after each update
  std::string name = {};                                         // empty: the model gives one
  bool trainable = true;                                         // its parameters learn
};
// The gradient of Conv1D as a layer: [batch, channels, length] -> [batch, filters, length']; weight [channels, filters,
// length]. InvalidArgument: a size that is not positive, or padding kCausal.
Layer Conv1DTranspose(const Conv1DTransposeOptions& options);

struct Conv3DTransposeOptions {
  int64_t filters = 0;                // channels of the output; needed
  Size3 kernel_size = 0;              // needed
  Size3 strides = 1;                  // the number of outputs that an input stands for
  Padding padding = Padding::kValid;  // kSame: input * strides outputs
  std::optional<Size3> output_padding =
      std::nullopt;                             // more outputs at the end, fewer than strides; unset: Keras' size
  Size3 dilation_rate = 1;                      // not together with strides above 1
  Activation activation = Activation::kLinear;  // applied to the output
  bool use_bias = true;                         // a bias is added
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // the initial values of the weight
  Initializer bias_initializer = Initializer::kZeros;            // the initial values of the bias
  Regularizer kernel_regularizer = {};                           // the weight's cost in the loss
  Regularizer bias_regularizer = {};                             // the bias' cost in the loss
  Constraint kernel_constraint = {};                             // the condition of the weight after each update
  Constraint bias_constraint = {};                               // the condition of the bias after each update
  std::string name = {};                                         // empty: the model gives one
  bool trainable = true;                                         // its parameters learn
};
// The gradient of Conv3D as a layer: [batch, channels, depth, height, width] -> [batch, filters, depth', height',
// width']; weight [channels, filters, depth, height, width]. InvalidArgument: as Conv1DTranspose.
Layer Conv3DTranspose(const Conv3DTransposeOptions& options);

}  // namespace cohort
