// VGGs: convolutions of 3 x 3 in five blocks, and three dense layers.
#include "cohort/train/layers/pooling.h"
#include "wings/functional/train/applications/network.h"
#include "wings/functional/train/applications/picture_layers.h"

namespace cohort::applications {

namespace {

SymbolicTensor vgg_top(Network& net, const SymbolicTensor& x, const ApplicationOptions& options) {
  constexpr int64_t kUnits = 4096, kPlaces = 7;
  constexpr double kDropout = 0.5;  // torchvision's; Keras has none
  SymbolicTensor y = net.is_keras() ? places_first_layer("flatten")(x)
                                    : Flatten().named("flatten")(adaptive_pool_layer(kPlaces, "avg_pool")(x));
  for (const int64_t number : {1, 2}) {
    const std::string name = "fc" + std::to_string(number);
    net.note_names({name, "classifier." + std::to_string(3 * (number - 1))});
    y = Dense({.units = kUnits, .activation = Activation::kRelu, .name = name})(y);
    if (!net.is_keras()) y = Dropout({.rate = kDropout, .name = name + "_dropout"})(y);
  }
  net.note_names({"predictions", "classifier.6"});
  return Dense({.units = options.classes, .activation = options.classifier_activation, .name = "predictions"})(y);
}

Application make_vgg(const std::string& number, const std::vector<int64_t>& blocks, const ApplicationOptions& options) {
  Network net({.speaker = "[applications] VGG" + number + ": ", .signature = "features.0.weight"}, options);
  SymbolicTensor x = net.input();
  int64_t filters = 64;
  int64_t place = 0;  // among torchvision's features
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    const std::string prefix = "block" + std::to_string(block + 1) + "_";
    for (int64_t i = 1; i <= blocks[block]; ++i, place += 2) {
      const KernelShape shape{.filters = filters, .kernel = 3, .bias = true, .activation = Activation::kRelu};
      x = net.conv(x, {prefix + "conv" + std::to_string(i), "features." + std::to_string(place)}, shape,
                   Padding::kSame);
    }
    x = MaxPooling2D({.pool_size = 2, .strides = 2, .name = prefix + "pool"})(x);
    ++place;
    if (block < 3) filters *= 2;
  }
  return net.finish(options.include_top ? vgg_top(net, x, options) : net.pooled(x, "", ""), "vgg" + number);
}

}  // namespace

Application VGG16(const ApplicationOptions& options) {
  return make_vgg("16", {2, 2, 3, 3, 3}, options);
}

Application VGG19(const ApplicationOptions& options) {
  return make_vgg("19", {2, 2, 4, 4, 4}, options);
}

}  // namespace cohort::applications
