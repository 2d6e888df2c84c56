#include "wings/functional/train/applications/network.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/fail.h"
#include "base/log.h"
#include "cohort/train/layers/normalization.h"
#include "cohort/train/layers/pooling.h"
#include "train/layers/support.h"
#include "wings/functional/train/applications/picture_layers.h"

namespace cohort::applications {

namespace {

constexpr int64_t kLeastSize = 32;

// Returns whether a tensor is the weight of a dense layer, which is a convolution of one pixel here.
bool fits_beside_ones(const torch::Tensor& weight, const torch::Tensor& own) {
  return weight.dim() == 2 && own.dim() == 4 && own.size(2) == 1 && own.size(3) == 1 &&
         weight.sizes() == own.sizes().slice(0, 2);
}

}  // namespace

int64_t divisible_channels(double channels) {
  const int64_t nearest = std::max<int64_t>(8, static_cast<int64_t>(channels + 4.0) / 8 * 8);
  return static_cast<double>(nearest) < 0.9 * channels ? nearest + 8 : nearest;
}

void require_alpha(const std::string& speaker, double alpha) {
  constexpr double kLargest = 100.0;
  if (alpha > 0.0 && alpha <= kLargest) return;
  fail<InvalidArgument>(speaker, "alpha is ", alpha, ", wanted more than 0, up to ", kLargest);
}

std::string name_with_alpha(const std::string& name, double alpha, int64_t rows) {
  const auto hundredths = static_cast<int64_t>(std::nearbyint(alpha * 100.0));
  const std::string part = std::to_string(hundredths % 100);
  return name + "_" + std::to_string(hundredths / 100) + "_" + (part.size() < 2 ? "0" : "") + part + "_" +
         (rows < 0 ? std::string("None") : std::to_string(rows));
}

Network::Network(Family family, ApplicationOptions options)
    : family_(std::move(family)), options_(std::move(options)), input_(Input(checked_shape())) {
  choose_form();
}

Shape Network::checked_shape() const {
  Shape shape = options_.input_shape;
  const bool any_size = family_.any_size || !options_.include_top;
  if (shape.empty()) shape = any_size ? Shape{3, -1, -1} : Shape{3, family_.usual_size, family_.usual_size};
  const auto fits = [&](int64_t size) { return size >= kLeastSize || (size == -1 && any_size); };
  if (shape.size() != 3 || shape[0] < 1 || !fits(shape[1]) || !fits(shape[2])) {
    fail<InvalidArgument>(family_.speaker, "input_shape is ", to_text(shape), ", wanted {channels, height, width} of ",
                          kLeastSize, " x ", kLeastSize, " or more", any_size ? ", or -1 for any" : "");
  }
  if (options_.classes < 1) {
    fail<InvalidArgument>(family_.speaker, "classes is ", options_.classes, ", wanted 1 or more");
  }
  const std::string& pooling = options_.pooling;
  const std::vector<std::string>& known = family_.poolings;
  if (!pooling.empty() && std::find(known.begin(), known.end(), pooling) == known.end()) {
    std::string names;
    for (const std::string& each : known) names += "\"" + each + "\", ";
    fail<InvalidArgument>(family_.speaker, "pooling is \"", pooling, "\", wanted ", names, "or nothing");
  }
  if (!pooling.empty() && options_.include_top) {
    fail<InvalidArgument>(family_.speaker, "pooling is \"", pooling, "\", which goes with include_top = false");
  }
  return shape;
}

void Network::choose_form() {
  form_ = options_.form.value_or(Form::kKeras);
  if (family_.signature.empty() && (form_ == Form::kTorchvision || !options_.weights.empty())) {
    fail<InvalidArgument>(family_.speaker, form_ == Form::kTorchvision ? "form is kTorchvision" : "weights is given",
                          ", but torchvision has no such network");
  }
  if (options_.weights.empty()) return;
  const std::string file = options_.weights.string();
  if (options_.weights.extension() == ".h5") {
    fail<InvalidArgument>(family_.speaker, "weights is ", file,
                          ", wanted torchvision's, saved as safetensors; load_keras_weights() takes Keras' files");
  }
  if (options_.form == Form::kKeras) {
    fail<InvalidArgument>(family_.speaker, "form is kKeras, but weights is ", file, ", which torchvision's form takes");
  }
  file_ = load_weights(options_.weights).tensors;
  const auto is_signature = [&](const auto& item) { return item.first == family_.signature; };
  if (std::none_of(file_.begin(), file_.end(), is_signature)) {
    fail<InvalidArgument>(family_.speaker, file, ": there is no \"", family_.signature,
                          "\", which torchvision's files have; weights of a model of Cohort's are read by its "
                          "load_weights()");
  }
  form_ = Form::kTorchvision;
}

SymbolicTensor Network::pad(const SymbolicTensor& x, const std::string& name, std::vector<int64_t> border) {
  return layer_of("ZeroPadding2D", {{"padding", std::move(border)}}, name)(x);
}

SymbolicTensor Network::pad_for_half(const SymbolicTensor& x, const std::string& name, int64_t kernel) const {
  const int64_t around = kernel / 2;
  const auto less = [&](int64_t size) -> int64_t { return is_keras() && (size < 0 || size % 2 == 0) ? 1 : 0; };
  // Keras takes an unknown size for an even one.
  return pad(x, name, {around - less(x.shape()[1]), around, around - less(x.shape()[2]), around});
}

SymbolicTensor Network::conv(const SymbolicTensor& x, const std::pair<std::string, std::string>& names,
                             const KernelShape& shape, Padding padding) {
  names_.push_back(names);
  if (shape.filters == 0) {
    const LayerConfig options = {{"kernel_size", option_value(Size2(shape.kernel))},
                                 {"strides", option_value(Size2(shape.stride))},
                                 {"padding", option_value(padding)},
                                 {"activation", shape.activation},
                                 {"use_bias", shape.bias},
                                 {"depthwise_initializer", shape.initializer}};
    return layer_of("DepthwiseConv2D", options, names.first)(x);
  }
  return Conv2D({.filters = shape.filters,
                 .kernel_size = shape.kernel,
                 .strides = shape.stride,
                 .padding = padding,
                 .activation = shape.activation,
                 .use_bias = shape.bias,
                 .kernel_initializer = shape.initializer,
                 .name = names.first})(x);
}

SymbolicTensor Network::conv_to_half(const SymbolicTensor& x, const std::pair<std::string, std::string>& names,
                                     const KernelShape& shape) {
  if (is_keras()) return conv(x, names, shape, Padding::kSame);
  return conv(pad_for_half(x, names.first + "_pad", shape.kernel), names, shape, Padding::kValid);
}

SymbolicTensor Network::norm(const SymbolicTensor& x, const std::pair<std::string, std::string>& names) {
  names_.push_back(names);
  const NormConstants& constants = is_keras() ? family_.keras_norm : family_.torchvision_norm;
  return BatchNormalization({.momentum = constants.momentum,
                             .epsilon = constants.epsilon,
                             .moving_variance = is_keras() ? MovingVariance::kKeras3 : MovingVariance::kTorch,
                             .name = names.first})(x);
}

SymbolicTensor Network::activation(const SymbolicTensor& x, const std::string& name, const Activation& activation) {
  return Layer(activation).named(name)(x);
}

SymbolicTensor Network::end(const SymbolicTensor& x, const std::string& pool, const std::string& max_pool,
                            const Classifier& classifier) {
  if (!options_.include_top) return pooled(x, pool, max_pool);
  names_.emplace_back("predictions", classifier.theirs);
  SymbolicTensor y = GlobalAveragePooling2D({.name = pool})(x);
  if (classifier.dropout > 0.0) y = Dropout({.rate = classifier.dropout, .name = "top_dropout"})(y);
  return Dense({.units = options_.classes,
                .activation = options_.classifier_activation,
                .kernel_initializer = classifier.initializer,
                .name = "predictions"})(y);
}

SymbolicTensor Network::pooled(const SymbolicTensor& x, const std::string& pool, const std::string& max_pool) const {
  if (options_.pooling == "avg") return GlobalAveragePooling2D({.name = pool})(x);
  return options_.pooling == "max" ? GlobalMaxPooling2D({.name = max_pool})(x) : x;
}

Application Network::finish(const SymbolicTensor& output, const std::string& name) const {
  Functional model(input_, output, {.name = options_.name.empty() ? name : options_.name, .dtype = options_.dtype});
  LoadedWeights loaded = load(model);
  return {std::move(model), form_, std::move(loaded)};
}

LoadedWeights Network::load(const Model& model) const {
  LoadedWeights account{.file = options_.weights};
  if (options_.weights.empty()) return account;
  const std::map<std::string, std::string> theirs(names_.begin(), names_.end());
  std::map<std::string, torch::Tensor> left(file_.begin(), file_.end());
  NamedTensors weights;
  for (const auto& [name, own] : model.module().state()) {
    const std::size_t dot = name.find('.');
    const auto whole = theirs.find(name);
    const std::string wanted =
        whole != theirs.end() ? whole->second : theirs.at(name.substr(0, dot)) + name.substr(dot);
    auto found = left.extract(wanted);
    if (found.empty() && name.ends_with(".num_batches_tracked")) {  // files before PyTorch 0.4.1 lack it
      account.missing.push_back(name);
      continue;
    }
    if (found.empty()) {
      fail<NotFound>(family_.speaker, account.file.string(), ": there is no \"", wanted, "\", which is ", name,
                     " of the model");
    }
    if (fits_beside_ones(found.mapped(), own)) found.mapped() = found.mapped().view(own.sizes());
    const torch::Tensor& given = found.mapped();
    if (given.sizes() != own.sizes() || given.is_floating_point() != own.is_floating_point()) {
      fail<InvalidArgument>(family_.speaker, account.file.string(), ": \"", wanted, "\" is ", given.dtype().name(), " ",
                            given.sizes(), ", wanted ", own.dtype().name(), " ", own.sizes(), " for ", name,
                            " of the model");
    }
    weights.emplace_back(name, given.to(own.scalar_type()));
    account.read.push_back(name);
  }
  for (const auto& [name, tensor] : left) account.unused.push_back(name);
  model.set_weights(weights, /*strict=*/false);
  log().info("{}read {} weights of {}, left out {}", family_.speaker, account.read.size(), account.file.string(),
             account.unused.size());
  return account;
}

}  // namespace cohort::applications
