// Layers: values that describe a layer; a model builds a torch::nn::Module from each, once a replica, when it knows the
// shape of its input.
//
//   cohort::Sequential model{Flatten(), Dense(256, Activation::kRelu), Dense(10)};
//   cohort::Sequential cnn{Conv2D({.filters = 32, .kernel_size = 3, .activation = Activation::kRelu}), MaxPooling2D(),
//   ...};
//
// Defaults are those of Keras; tensors are those of LibTorch: images are [batch, channels, height, width], the weight
// of Dense is [units, inputs], that of Conv2D [filters, channels / groups, height, width]. So the parameters
// ("dense.weight", "dense.bias") load into a PyTorch nn.Sequential whose modules have the layers' names.
//
// Shapes here leave the batch out; -1 stands for a dimension that is not known yet. Options that make no sense are
// InvalidArgument when the layer is described; an input that does not fit is InvalidArgument, naming the layer, when it
// is built or called. All layers take batches of no examples.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

// Sizes of dimensions, without the batch; -1: not known yet.
using Shape = std::vector<int64_t>;

// An elementwise function (softmax and log-softmax: over the last dimension). As the option of a layer, and, because it
// converts to Layer, as a layer of its own: Sequential{..., Activation(Activation::kSoftmax)}.
class Activation {
 public:
  // The functions of the library.
  enum Kind {
    kLinear,
    kRelu,
    kRelu6,
    kLeakyRelu,  // slope 0.2 below zero, Keras 3's
    kElu,
    kSelu,
    kGelu,  // exact, by the error function
    kSigmoid,
    kHardSigmoid,  // relu6(x + 3) / 6
    kTanh,
    kSoftmax,
    kLogSoftmax,
    kSoftplus,
    kSoftsign,
    kSilu,  // also called swish
    kMish,
    kExponential,
  };
  // A function of the user's.
  using Function = std::function<torch::Tensor(const torch::Tensor&)>;

  // One of the library's functions; implicit, so that {.activation = Activation::kRelu} reads well.
  Activation(Kind kind = kLinear) : kind_(kind) {}  // NOLINT(google-explicit-constructor)
  // A function of the user's; it must not change the shape. Called from several threads at once.
  Activation(std::string name, Function function);

  // By Keras' name: "relu", "leaky_relu", "swish", ... Unknown: NotFound lists them.
  static Activation parse(std::string_view name);

  // Returns Keras' name of the function, or the user's.
  std::string_view name() const;
  // Returns whether it changes nothing.
  bool is_linear() const { return kind_ == kLinear && !function_; }
  // Returns whether it is the library's relu.
  bool is_relu() const { return kind_ == kRelu && !function_; }

  // Applies the function; the result has the shape of x.
  torch::Tensor operator()(const torch::Tensor& x) const;
  // The same for a tensor that nobody else holds and whose values the operation that made it does not need for its
  // gradient: it is overwritten where the function allows it.
  torch::Tensor overwrite(torch::Tensor x) const;

 private:
  Kind kind_ = kLinear;
  std::string name_;
  Function function_;
};

// How a parameter starts. Draws from LibTorch's default generator (torch::manual_seed).
class Initializer {
 public:
  // The ways to start of the library.
  enum Kind {
    kZeros,
    kOnes,
    kGlorotUniform,  // Glorot and Bengio, 2010
    kGlorotNormal,   // the normal ones are cut off at two standard deviations, as Keras'
    kHeUniform,      // He et al., 2015
    kHeNormal,
    kLecunUniform,
    kLecunNormal,
    kUniform,  // in [-0.05, 0.05]
    kNormal,   // standard deviation 0.05
  };
  // A function of the user's; it fills the parameter in place.
  using Function = std::function<void(torch::Tensor& parameter)>;

  // One of the library's ways.
  Initializer(Kind kind) : kind_(kind) {}                                      // NOLINT(google-explicit-constructor)
  explicit Initializer(Function function) : function_(std::move(function)) {}  // fills the tensor in place

  // Fills the parameter; the fans are the numbers of inputs and outputs of one element.
  void fill(torch::Tensor parameter, double fan_in, double fan_out) const;

 private:
  Kind kind_ = kZeros;
  Function function_;
};

// Height and width; one number stands for both.
struct Size2 {
  // The same number for both.
  Size2(int64_t both) : height(both), width(both) {}  // NOLINT(google-explicit-constructor)
  // A number for each.
  Size2(int64_t height, int64_t width) : height(height), width(width) {}
  bool operator==(const Size2&) const = default;

  int64_t height;  // rows
  int64_t width;   // columns
};

// kSame: TensorFlow's: the output has ceil(input / stride) elements, and an odd number of padded ones has the larger
// part at the end.
enum class Padding { kValid, kSame };

// What a layer becomes: a module with one input and one output.
class LayerModule : public torch::nn::Module {
 public:
  // Computes the output for a batch, which may be empty.
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
  // Called when the layer is frozen or thawed, besides setting requires_grad; batch norm stops learning statistics.
  virtual void set_frozen(bool /*frozen*/) {}
};

// What LayerKind::build() is told.
struct BuildContext {
  std::string name;                               // of the layer, for messages
  Shape input;                                    // without the batch
  torch::ScalarType dtype = torch::kFloat;        // of parameters and of what flows between layers
  torch::ScalarType input_dtype = torch::kFloat;  // of what comes in: another one only where the data do
};

// One sort of layer with its options; immutable, thread-safe. Derive from it for a sort of your own.
class LayerKind {
 public:
  virtual ~LayerKind() = default;

  virtual std::string_view type() const = 0;       // "Dense"
  virtual std::string_view base_name() const = 0;  // "dense": what unnamed layers are called, with _1, _2, ... appended
  // Throws InvalidArgument, naming context.name, when the input does not fit.
  virtual Shape output_shape(const BuildContext& context) const = 0;
  // Only after output_shape() of the same context has passed.
  virtual std::shared_ptr<LayerModule> build(const BuildContext& context) const = 0;
};

// A value: a kind of layer, its name and whether it learns.
class Layer {
 public:
  // An activation as a layer of its own.
  Layer(const Activation& activation);  // NOLINT(google-explicit-constructor)
  explicit Layer(std::shared_ptr<const LayerKind> kind, std::string name = {}, bool trainable = true);

  // Empty: the model gives it one. A name is unique in its model and has no dot (InvalidArgument).
  const std::string& name() const { return name_; }
  // Returns whether its parameters learn.
  bool trainable() const { return trainable_; }
  // Returns the sort of layer: "Dense".
  std::string_view type() const { return kind_->type(); }
  // Returns the sort of layer with its options.
  const LayerKind& kind() const { return *kind_; }

  // Returns the same layer with another name.
  Layer named(std::string name) const { return Layer(kind_, std::move(name), trainable_); }
  // Sets whether its parameters learn.
  void set_trainable(bool trainable) { trainable_ = trainable; }

 private:
  std::shared_ptr<const LayerKind> kind_;
  std::string name_;
  bool trainable_ = true;
};

struct DenseOptions {
  int64_t units = 0;                                             // size of the output; needed
  Activation activation = Activation::kLinear;                   // applied to the output
  bool use_bias = true;                                          // whether a bias is added
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // how the weight starts
  Initializer bias_initializer = Initializer::kZeros;            // how the bias starts
  std::string name = {};                                         // empty: the model gives one
  bool trainable = true;                                         // whether its parameters learn
};
// [batch, ..., inputs] -> [batch, ..., units]; parameters weight [units, inputs], bias [units].
Layer Dense(const DenseOptions& options);
Layer Dense(int64_t units, const Activation& activation = Activation::kLinear);

struct Conv2DOptions {
  int64_t filters = 0;                                           // channels of the output; needed
  Size2 kernel_size = 0;                                         // needed
  Size2 strides = 1;                                             // step of the kernel
  Padding padding = Padding::kValid;                             // what is added around the image
  Size2 dilation_rate = 1;                                       // not together with strides above 1
  int64_t groups = 1;                                            // divides the channels of input and output
  Activation activation = Activation::kLinear;                   // applied to the output
  bool use_bias = true;                                          // whether a bias is added
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // how the weight starts
  Initializer bias_initializer = Initializer::kZeros;            // how the bias starts
  std::string name = {};                                         // empty: the model gives one
  bool trainable = true;                                         // whether its parameters learn
};
// [batch, channels, height, width] -> [batch, filters, height', width']. Images without a channel dimension
// ([batch, height, width], as MNIST's) count as having one channel.
Layer Conv2D(const Conv2DOptions& options);
Layer Conv2D(int64_t filters, Size2 kernel_size, const Activation& activation = Activation::kLinear);

struct DepthwiseConv2DOptions {
  Size2 kernel_size = 0;                                            // needed
  Size2 strides = 1;                                                // step of the kernel
  Padding padding = Padding::kValid;                                // what is added around the image
  int64_t depth_multiplier = 1;                                     // output channels an input channel
  Size2 dilation_rate = 1;                                          // not together with strides above 1
  Activation activation = Activation::kLinear;                      // applied to the output
  bool use_bias = true;                                             // whether a bias is added
  Initializer depthwise_initializer = Initializer::kGlorotUniform;  // how the weight starts
  Initializer bias_initializer = Initializer::kZeros;               // how the biases start
  std::string name = {};                                            // empty: the model gives one
  bool trainable = true;                                            // whether its parameters learn
};
// As Conv2D, each channel by itself; weight [channels * depth_multiplier, 1, height, width].
Layer DepthwiseConv2D(const DepthwiseConv2DOptions& options);

struct Pooling2DOptions {
  Size2 pool_size = 2;                          // height and width of a window
  std::optional<Size2> strides = std::nullopt;  // unset: pool_size
  Padding padding = Padding::kValid;            // what is added around the image
  std::string name = {};                        // empty: the model gives one
};
// [batch, channels, height, width] -> [batch, channels, height', width']. Padding takes no part in maxima and averages.
Layer MaxPooling2D(const Pooling2DOptions& options = {});
// The mean of each window.
Layer AveragePooling2D(const Pooling2DOptions& options = {});

struct GlobalAveragePooling2DOptions {
  bool keepdims = false;  // [batch, channels, 1, 1] instead of [batch, channels]
  std::string name = {};  // empty: the model gives one
};
// The mean of each channel: [batch, channels, height, width] -> [batch, channels].
Layer GlobalAveragePooling2D(const GlobalAveragePooling2DOptions& options = {});

// [batch, ...] -> [batch, product]; [batch] -> [batch, 1].
Layer Flatten();
// [batch, ...] -> [batch, target...]; one dimension may be -1.
Layer Reshape(Shape target_shape);

struct DropoutOptions {
  double rate = 0.5;      // of elements set to zero while training, the others grow by 1 / (1 - rate); in [0, 1)
  std::string name = {};  // empty: the model gives one
};
// Draws from the replica's own generator (Replica::generator()), outside replicas from LibTorch's default one.
Layer Dropout(const DropoutOptions& options);
Layer Dropout(double rate);

struct BatchNormalizationOptions {
  double momentum = 0.99;  // running = running * momentum + batch * (1 - momentum)
  double epsilon = 1e-3;   // added to the variance
  bool center = true;      // learns an offset (bias)
  bool scale = true;       // learns a factor (weight)
  bool synchronized =
      false;              // statistics over the global batch, by two collectives a step, instead of the replica's share
  std::string name = {};  // empty: the model gives one
  bool trainable = true;  // whether its parameters learn
};
// Over all dimensions but dimension 1, the channels. Buffers running_mean, running_var (of the unbiased variance, as
// PyTorch and TensorFlow's fused kernel), num_batches_tracked; they stay per replica and are averaged when read. A
// replica without examples leaves them alone. A frozen layer uses them instead of the batch's, as Keras'. Source of the
// synchronised statistics: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm" (1979): exact for
// uneven shares.
Layer BatchNormalization(const BatchNormalizationOptions& options = {});

struct LayerNormalizationOptions {
  int64_t dimensions = 1;  // how many of the last dimensions are normalised together
  double epsilon = 1e-3;   // added to the variance
  bool center = true;      // learns an offset (bias)
  bool scale = true;       // learns a factor (weight)
  std::string name = {};   // empty: the model gives one
  bool trainable = true;   // whether its parameters learn
};
// Takes the mean from the last dimensions and divides by their deviation; parameters weight and bias of their shape.
Layer LayerNormalization(const LayerNormalizationOptions& options = {});

struct EmbeddingOptions {
  int64_t input_dim = 0;                                       // number of rows: indices are in [0, input_dim)
  int64_t output_dim = 0;                                      // size of a row
  Initializer embeddings_initializer = Initializer::kUniform;  // how the rows start
  std::string name = {};                                       // empty: the model gives one
  bool trainable = true;                                       // whether its parameters learn
};
// Integers [batch, ...] -> [batch, ..., output_dim]; weight [input_dim, output_dim].
Layer Embedding(const EmbeddingOptions& options);
Layer Embedding(int64_t input_dim, int64_t output_dim);

// x * scale + offset; integers become floating point.
Layer Rescaling(double scale, double offset = 0.0);

// A function without parameters. The output's shape is found by calling it on zeros.
Layer Lambda(std::function<torch::Tensor(const torch::Tensor&)> function, std::string name = {});

namespace detail {
struct ForeignModule {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor&)> forward;
};
Layer foreign_layer(std::function<ForeignModule(const Shape&)> build, std::string name);

// What is common to module holders and shared pointers.
template <typename M>
ForeignModule foreign_module(M module) {
  std::shared_ptr<torch::nn::Module> base;
  if constexpr (requires { module.ptr(); }) {
    base = module.ptr();
  } else {
    base = module;
  }
  return {std::move(base), [module](const torch::Tensor& x) mutable -> torch::Tensor { return module->forward(x); }};
}
}  // namespace detail

// Any torch::nn::Module as a layer. build(input shape) returns a module holder or a shared_ptr, a new one at each call;
// its forward takes a tensor. The output's shape is found by calling it on zeros.
template <typename Build>
Layer Wrap(Build build, std::string name = {}) {
  return detail::foreign_layer([build](const Shape& input) { return detail::foreign_module(build(input)); },
                               std::move(name));
}

}  // namespace cohort
