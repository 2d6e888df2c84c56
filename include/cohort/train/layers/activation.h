// Activations: elementwise functions, as options of layers and as layers of their own.
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>
#include <string_view>

namespace cohort {

// An elementwise function (softmax, log-softmax and sparsemax: over the last dimension). It is given as the option of a
// layer, or, because it converts to Layer, as a layer of its own: Sequential{..., Activation(Activation::kSoftmax)}.
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
    kHardSilu,     // x relu6(x + 3) / 6; also called hard_swish
    kHardTanh,     // cut off at -1 and 1
    kHardShrink,   // 0 between -0.5 and 0.5
    kSoftShrink,   // the same, and 0.5 nearer to 0 outside
    kTanhShrink,   // x - tanh(x)
    kCelu,
    kLogSigmoid,
    kSquareplus,     // (x + sqrt(x^2 + 4)) / 2
    kSparsePlus,     // 0 below -1, x above 1, (x + 1)^2 / 4 between
    kSparseSigmoid,  // (x + 1) / 2, cut off at 0 and 1
    kSparsemax,      // the nearest numbers above 0 whose sum is 1
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
  // The one of this name, as parse(); implicit, too.
  Activation(const char* name) : Activation(parse(name)) {}  // NOLINT(google-explicit-constructor)
  // A function of the user's; it must not change the shape. Called from several threads at once.
  Activation(std::string name, Function function);

  // Returns the one of Keras' name: "relu", "leaky_relu", "swish", ... Unknown: NotFound lists them.
  static Activation parse(std::string_view name);

  // Returns Keras' name of the function, or the user's.
  std::string_view name() const;
  // Returns whether it changes nothing.
  bool is_linear() const { return kind_ == kLinear && !function_; }
  // Returns whether it is a function of the user's.
  bool is_users() const { return static_cast<bool>(function_); }
  // Returns whether it is the library's relu.
  bool is_relu() const { return kind_ == kRelu && !function_; }

  // Returns whether each element of the result depends on one element alone, as far as the library knows: neither for
  // the softmaxes nor for a function of the user's.
  bool is_elementwise() const { return kind_ != kSoftmax && kind_ != kLogSoftmax && kind_ != kSparsemax && !function_; }

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

}  // namespace cohort
