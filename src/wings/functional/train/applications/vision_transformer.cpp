#include "wings/functional/train/applications/vision_transformer.h"

#include <cctype>
#include <cmath>

#include "base/fail.h"
#include "cohort/train/layers/merging.h"
#include "train/layers/support.h"
#include "wings/functional/train/applications/network.h"
#include "wings/functional/train/applications/token_layers.h"

namespace cohort::applications {

namespace {

SymbolicTensor dense_of_tokens(Network& net, const SymbolicTensor& x, const std::pair<std::string, std::string>& names,
                               int64_t units, const Activation& activation) {
  net.note_names(names);
  constexpr double kDeviation = 1e-6;
  return Dense({.units = units,
                .activation = activation,
                .bias_initializer = Initializer::random_normal({.stddev = kDeviation}),
                .name = names.first})(x);
}

SymbolicTensor encoder_layer(Network& net, const SymbolicTensor& x, const TransformerSize& size, int64_t number) {
  const std::string prefix = "encoder_layer_" + std::to_string(number) + "_";
  const std::string theirs = "encoder.layers.encoder_layer_" + std::to_string(number) + ".";
  const auto named = [&](const std::string& ours, const std::string& part) {
    net.note_names({prefix + ours, theirs + part});
    return prefix + ours;
  };
  SymbolicTensor y = token_norm_layer(named("ln_1", "ln_1"))(x);
  y = token_attention_layer(size.heads, named("self_attention", "self_attention"))(y);
  const SymbolicTensor seen = Add({.name = prefix + "add_1"})({x, y});
  y = token_norm_layer(named("ln_2", "ln_2"))(seen);
  y = dense_of_tokens(net, y, {prefix + "mlp_0", theirs + "mlp.0"}, size.mlp, Activation::kGelu);
  y = dense_of_tokens(net, y, {prefix + "mlp_3", theirs + "mlp.3"}, size.hidden, Activation::kLinear);
  return Add({.name = prefix + "add_2"})({seen, y});
}

ApplicationOptions transformer_options(const ViTOptions& options) {
  return {.input_shape = options.input_shape.empty() ? Shape{3, 224, 224} : options.input_shape,
          .include_top = options.include_top,
          .pooling = options.pooling,
          .weights = options.weights,
          .classes = options.classes,
          .classifier_activation = options.classifier_activation,
          .name = options.name,
          .form = Form::kTorchvision,
          .dtype = options.dtype};
}

}  // namespace

Application make_vision_transformer(const std::string& name, const TransformerSize& size, const ViTOptions& options) {
  const std::string speaker = "[applications] " + name + ": ";
  Network net({.speaker = speaker, .signature = "encoder.pos_embedding", .poolings = {"token"}},
              transformer_options(options));
  const Shape& picture = net.input().shape();
  if (picture[1] < 0 || picture[1] % size.patch != 0 || picture[2] < 0 || picture[2] % size.patch != 0) {
    fail<InvalidArgument>(speaker, "input_shape is ", to_text(picture), ", wanted a height and a width in patches of ",
                          size.patch, " x ", size.patch);
  }
  const double fan_in = static_cast<double>(picture[0] * size.patch * size.patch);
  const Initializer kernels = Initializer::random_normal({.stddev = std::sqrt(1.0 / fan_in)});
  SymbolicTensor x = net.conv(
      net.input(), {"conv_proj", "conv_proj"},
      {.filters = size.hidden, .kernel = size.patch, .stride = size.patch, .bias = true, .initializer = kernels},
      Padding::kValid);
  net.note_names({"tokens.class_token", "class_token"});
  net.note_names({"tokens.pos_embedding", "encoder.pos_embedding"});
  x = patch_tokens_layer("tokens")(x);
  for (int64_t i = 0; i < size.layers; ++i) x = encoder_layer(net, x, size, i);
  net.note_names({"encoder_ln", "encoder.ln"});
  x = token_norm_layer("encoder_ln")(x);
  if (options.include_top || options.pooling == "token") x = x.select(1, 0);
  if (options.include_top) {
    net.note_names({"predictions", "heads.head"});
    x = Dense({.units = options.classes,
               .activation = options.classifier_activation,
               .kernel_initializer = Initializer::kZeros,
               .name = "predictions"})(x);
  }
  std::string model;
  for (const char letter : name) model += static_cast<char>(std::tolower(letter));
  return net.finish(x, model);
}

Application ViTB16(const ViTOptions& options) {
  return make_vision_transformer("ViTB16", {16, 12, 12, 768, 3072}, options);
}

Application ViTB32(const ViTOptions& options) {
  return make_vision_transformer("ViTB32", {32, 12, 12, 768, 3072}, options);
}

Application ViTL16(const ViTOptions& options) {
  return make_vision_transformer("ViTL16", {16, 24, 16, 1024, 4096}, options);
}

Application ViTL32(const ViTOptions& options) {
  return make_vision_transformer("ViTL32", {32, 24, 16, 1024, 4096}, options);
}

Application ViTH14(const ViTOptions& options) {
  return make_vision_transformer("ViTH14", {14, 32, 16, 1280, 5120}, options);
}

}  // namespace cohort::applications
