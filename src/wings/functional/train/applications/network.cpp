#include "wings/functional/train/applications/network.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <map>

#include "base/fail.h"
#include "base/log.h"
#include "cohort/train/layers/normalization.h"
#include "cohort/train/layers/pooling.h"
#include "train/layers/support.h"

namespace cohort::applications {

namespace {

constexpr int64_t kLeastSize = 32;
constexpr int64_t kUsualSize = 224;

// Puts zeros around pictures. The wing layers has the layer of this name for programs.
class PaddingModule final : public LayerModule {
 public:
  explicit PaddingModule(std::vector<int64_t> border) : border_(std::move(border)) {}
  DependsOn depends_on() const override { return DependsOn::kChannel; }
  torch::Tensor forward(const torch::Tensor& x) override {
    return at::constant_pad_nd(x, {border_[2], border_[3], border_[0], border_[1]});
  }

 private:
  std::vector<int64_t> border_;
};

class PaddingKind final : public LayerKind {
 public:
  explicit PaddingKind(std::vector<int64_t> border) : border_(std::move(border)) {}
  std::string_view type() const override { return "ZeroPadding2D"; }
  std::string_view base_name() const override { return "zero_padding2d"; }
  Shape output_shape(const BuildContext& context) const override {
    const Shape image = image_shape(context, type(), /*may_add_channel=*/false);
    const auto padded = [](int64_t size, int64_t more) { return size < 0 ? size : size + more; };
    return {image[0], padded(image[1], border_[0] + border_[1]), padded(image[2], border_[2] + border_[3])};
  }
  std::shared_ptr<LayerModule> build(const BuildContext& /*context*/) const override {
    return std::make_shared<PaddingModule>(border_);
  }

 private:
  std::vector<int64_t> border_;
};

}  // namespace

int64_t divisible_channels(double channels) {
  const int64_t nearest = std::max<int64_t>(8, static_cast<int64_t>(channels + 4.0) / 8 * 8);
  return static_cast<double>(nearest) < 0.9 * channels ? nearest + 8 : nearest;
}

Network::Network(Family family, ApplicationOptions options)
    : family_(std::move(family)), options_(std::move(options)), input_(Input(checked_shape())) {
  choose_form();
}

Shape Network::checked_shape() const {
  Shape shape = options_.input_shape;
  if (shape.empty()) shape = options_.include_top ? Shape{3, kUsualSize, kUsualSize} : Shape{3, -1, -1};
  const auto fits = [&](int64_t size) { return size >= kLeastSize || (size == -1 && !options_.include_top); };
  if (shape.size() != 3 || shape[0] < 1 || !fits(shape[1]) || !fits(shape[2])) {
    fail<InvalidArgument>(family_.speaker, "input_shape is ", to_text(shape), ", wanted {channels, height, width} of ",
                          kLeastSize, " x ", kLeastSize, " or more", options_.include_top ? "" : ", or -1 for any");
  }
  if (options_.classes < 1) {
    fail<InvalidArgument>(family_.speaker, "classes is ", options_.classes, ", wanted 1 or more");
  }
  const std::string& pooling = options_.pooling;
  if (!pooling.empty() && pooling != "avg" && pooling != "max") {
    fail<InvalidArgument>(family_.speaker, "pooling is \"", pooling, "\", wanted \"avg\", \"max\" or nothing");
  }
  if (!pooling.empty() && options_.include_top) {
    fail<InvalidArgument>(family_.speaker, "pooling is \"", pooling, "\", which goes with include_top = false");
  }
  return shape;
}

void Network::choose_form() {
  form_ = options_.form.value_or(Form::kKeras);
  if (options_.weights.empty()) return;
  const std::string file = options_.weights.string();
  if (options_.weights.extension() == ".h5") {
    fail<InvalidArgument>(family_.speaker, "weights is ", file, ", wanted torchvision's, saved as safetensors");
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
  return Layer(std::make_shared<PaddingKind>(std::move(border)), name)(x);
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
    return DepthwiseConv2D({.kernel_size = shape.kernel,
                            .strides = shape.stride,
                            .padding = padding,
                            .use_bias = shape.bias,
                            .name = names.first})(x);
  }
  return Conv2D({.filters = shape.filters,
                 .kernel_size = shape.kernel,
                 .strides = shape.stride,
                 .padding = padding,
                 .use_bias = shape.bias,
                 .name = names.first})(x);
}

SymbolicTensor Network::norm(const SymbolicTensor& x, const std::pair<std::string, std::string>& names) {
  names_.push_back(names);
  if (is_keras()) {
    return BatchNormalization({.momentum = family_.momentum, .epsilon = family_.epsilon, .name = names.first})(x);
  }
  return BatchNormalization(
      {.momentum = 0.9, .epsilon = 1e-5, .moving_variance = MovingVariance::kTorch, .name = names.first})(x);
}

SymbolicTensor Network::activation(const SymbolicTensor& x, const std::string& name, const Activation& activation) {
  return Layer(activation).named(name)(x);
}

SymbolicTensor Network::end(const SymbolicTensor& x, const std::string& pool, const std::string& max_pool,
                            const std::string& classifier) {
  if (options_.include_top) {
    names_.emplace_back("predictions", classifier);
    return Dense({.units = options_.classes, .activation = options_.classifier_activation, .name = "predictions"})(
        GlobalAveragePooling2D({.name = pool})(x));
  }
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
    const std::string wanted = theirs.at(name.substr(0, dot)) + name.substr(dot);
    auto found = left.extract(wanted);
    if (found.empty() && name.ends_with(".num_batches_tracked")) {  // files before PyTorch 0.4.1 lack it
      account.missing.push_back(name);
      continue;
    }
    if (found.empty()) {
      fail<NotFound>(family_.speaker, account.file.string(), ": there is no \"", wanted, "\", which is ", name,
                     " of the model");
    }
    if (found.mapped().sizes() != own.sizes()) {
      fail<InvalidArgument>(family_.speaker, account.file.string(), ": \"", wanted, "\" is ", found.mapped().sizes(),
                            ", wanted ", own.sizes(), " for ", name, " of the model");
    }
    weights.emplace_back(name, found.mapped().to(own.scalar_type()));
    account.read.push_back(name);
  }
  for (const auto& [name, tensor] : left) account.unused.push_back(name);
  model.set_weights(weights, /*strict=*/false);
  log().info("{}read {} weights of {}, left out {}", family_.speaker, account.read.size(), account.file.string(),
             account.unused.size());
  return account;
}

}  // namespace cohort::applications
