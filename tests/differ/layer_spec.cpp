#include "tests/differ/layer_spec.h"

namespace cohort::differ {
namespace {

Activation activation_of(int64_t number) {
  return static_cast<Activation::Kind>(number % (static_cast<int64_t>(Activation::kExponential)));
}

Layer convolution(const LayerSpec& s, const std::string& name) {
  const Size2 kernel(s.kernel[0], s.kernel[1]);
  const Padding padding = s.same ? Padding::kSame : Padding::kValid;
  const Activation activation = activation_of(s.activation);
  switch (s.kind) {
    case 0:
    case 1:
    case 2:
      return Conv2D({.filters = 2 * s.width,
                     .kernel_size = kernel,
                     .strides = s.stride,
                     .padding = padding,
                     .groups = s.kind == 2 ? 2 : 1,
                     .activation = activation,
                     .use_bias = s.bias,
                     .name = name,
                     .trainable = s.trainable});
    case 3:
      return DepthwiseConv2D({.kernel_size = kernel,
                              .strides = s.stride,
                              .padding = padding,
                              .depth_multiplier = 1 + s.width % 2,
                              .activation = activation,
                              .use_bias = s.bias,
                              .name = name,
                              .trainable = s.trainable});
    case 4:
      return SeparableConv2D({.filters = 2 * s.width,
                              .kernel_size = kernel,
                              .strides = s.stride,
                              .padding = padding,
                              .activation = activation,
                              .use_bias = s.bias,
                              .name = name,
                              .trainable = s.trainable});
    default:
      return Conv2DTranspose({.filters = 2 * s.width,
                              .kernel_size = kernel,
                              .strides = s.stride,
                              .padding = padding,
                              .activation = activation,
                              .use_bias = s.bias,
                              .name = name,
                              .trainable = s.trainable});
  }
}

Layer image_layer(const LayerSpec& s, const std::string& name) {
  if (s.kind < 6) return convolution(s, name);
  const Size2 kernel(s.kernel[0], s.kernel[1]);
  const Pooling2DOptions pooling{
      .pool_size = kernel, .strides = Size2(s.stride), .padding = s.same ? Padding::kSame : Padding::kValid};
  switch (s.kind) {
    case 6:
      return MaxPooling2D(pooling);
    case 7:
      return AveragePooling2D(pooling);
    case 8:
      return GlobalAveragePooling2D({.keepdims = s.same});
    case 9:
      return GlobalMaxPooling2D({.keepdims = s.same});
    case 10:
      return UpSampling2D({.size = kernel});
    case 11:
      return UpSampling2D({.size = kernel, .interpolation = UpSampling2DOptions::Interpolation::kBilinear});
    case 12:
      return ZeroPadding2D(Border2(s.kernel[0] - 1, s.kernel[1] - 1));
    case kBatchNorm:
      return BatchNormalization({.center = s.bias, .synchronized = true, .name = name, .trainable = s.trainable});
    case kGroupNorm:
      return GroupNormalization({.groups = s.same ? 2 : -1, .name = name, .trainable = s.trainable});
    case 15:
      return Permute({2, 1, 3});
    default:
      return Permute({1, 3, 2});
  }
}

Layer sequence_layer(const LayerSpec& s, const std::string& name) {
  const Activation activation = activation_of(s.activation);
  switch (s.kind - kImageKinds) {
    case 0:
      return LSTM({.units = 2 * s.width, .return_sequences = s.same, .go_backwards = s.bias, .name = name});
    case 1:
      return GRU({.units = 2 * s.width, .return_sequences = s.same, .use_bias = s.bias, .name = name});
    case 2:
      return Bidirectional(LSTM({.units = s.width, .return_sequences = s.same}));
    case 3:
      return MultiHeadAttention(
          {.num_heads = 2, .key_dim = s.width, .use_bias = s.bias, .use_causal_mask = s.same, .name = name});
    case 4:
      return Conv1D({.filters = 2 * s.width,
                     .kernel_size = s.kernel[0],
                     .strides = s.stride,
                     .padding = s.same ? Padding::kCausal : Padding::kValid,
                     .activation = activation,
                     .use_bias = s.bias,
                     .name = name,
                     .trainable = s.trainable});
    case 5:
      return GlobalAveragePooling1D({.channels_first = s.same});
    case 6:
      return GlobalMaxPooling1D({.keepdims = s.same});
    case 7:
      return MaxPooling1D({.pool_size = s.kernel[0], .strides = s.stride});
    case 8:
      return AveragePooling1D({.pool_size = s.kernel[0], .padding = s.same ? Padding::kSame : Padding::kValid});
    default:
      return TimeDistributed(Dense({.units = 2 * s.width, .activation = activation}));
  }
}

}  // namespace

Layer LayerSpec::made(int64_t number) const {
  const std::string name = c10::str("layer_", number);
  const auto plain = [&]() -> Layer {
    switch (kind - kImageKinds - kSequenceKinds) {
      case 0:
        return Dense({.units = 2 * width,
                      .activation = activation_of(activation),
                      .use_bias = bias,
                      .name = name,
                      .trainable = trainable});
      case 1:
        return cohort::Activation(activation_of(activation));
      case 2:
        return LayerNormalization({.center = bias, .name = name, .trainable = trainable});
      default:
        return RMSNormalization({.name = name, .trainable = trainable});
    }
  };
  const Layer layer = kind < kImageKinds                    ? image_layer(*this, name)
                      : kind < kImageKinds + kSequenceKinds ? sequence_layer(*this, name)
                                                            : plain();
  return checkpointed ? Checkpointed(layer) : layer;
}

}  // namespace cohort::differ
