#include <ATen/Functions.h>

#include <array>
#include <utility>

#include "base/fail.h"
#include "cohort/train/layers/activation.h"
#include "cohort/train/layers/layer.h"
#include "ops/one_layout.h"
#include "strategy/divided.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

struct Name {
  std::string_view name;
  Activation::Kind kind;
};

// The first name of a kind is the one that is printed.
constexpr std::array kNames = {
    Name{"linear", Activation::kLinear},
    Name{"relu", Activation::kRelu},
    Name{"relu6", Activation::kRelu6},
    Name{"leaky_relu", Activation::kLeakyRelu},
    Name{"elu", Activation::kElu},
    Name{"selu", Activation::kSelu},
    Name{"gelu", Activation::kGelu},
    Name{"sigmoid", Activation::kSigmoid},
    Name{"hard_sigmoid", Activation::kHardSigmoid},
    Name{"hard_silu", Activation::kHardSilu},
    Name{"hard_swish", Activation::kHardSilu},
    Name{"hard_tanh", Activation::kHardTanh},
    Name{"hard_shrink", Activation::kHardShrink},
    Name{"soft_shrink", Activation::kSoftShrink},
    Name{"tanh_shrink", Activation::kTanhShrink},
    Name{"celu", Activation::kCelu},
    Name{"log_sigmoid", Activation::kLogSigmoid},
    Name{"squareplus", Activation::kSquareplus},
    Name{"sparse_plus", Activation::kSparsePlus},
    Name{"sparse_sigmoid", Activation::kSparseSigmoid},
    Name{"sparsemax", Activation::kSparsemax},
    Name{"tanh", Activation::kTanh},
    Name{"softmax", Activation::kSoftmax},
    Name{"log_softmax", Activation::kLogSoftmax},
    Name{"softplus", Activation::kSoftplus},
    Name{"softsign", Activation::kSoftsign},
    Name{"silu", Activation::kSilu},
    Name{"swish", Activation::kSilu},
    Name{"mish", Activation::kMish},
    Name{"exponential", Activation::kExponential},
};

constexpr double kLeakySlope = 0.2;

// LibTorch 1.13 takes another kernel for the gradient of a contiguous input. It leaves its result unwritten where the
// gradient has other strides.
torch::Tensor gelu_in_one_layout(const torch::Tensor& x) {
  if (is_divided(x)) return on_part(x, gelu_in_one_layout);
  torch::Tensor y = at::gelu(x);
  if (x.device().is_cpu() && x.is_contiguous()) lay_out_gradient(y, at::MemoryFormat::Contiguous);
  return y;
}

// x^2 / 4 between two straight lines: the integral of the sparse sigmoid.
torch::Tensor sparse_plus(const torch::Tensor& x) {
  const torch::Tensor curve = (x + 1).square() / 4;
  return at::where(x.le(-1), at::zeros_like(x), at::where(x.ge(1), x, curve));
}

// The nearest point of the probability simplex (Martins and Astudillo, 2016): what is above a threshold, which is such
// that the sum is 1.
torch::Tensor sparsemax(const torch::Tensor& x) {
  const torch::Tensor sorted = std::get<0>(at::sort(x, -1, /*descending=*/true));
  const torch::Tensor sums = at::cumsum(sorted, -1) - 1;
  const torch::Tensor counts = at::arange(1, x.size(-1) + 1, x.options().requires_grad(false));
  const torch::Tensor support = (sorted * counts > sums).sum(-1, /*keepdim=*/true);
  return at::relu(x - at::gather(sums, -1, support - 1) / support);
}

// The activations that are rarer, each an expression.
torch::Tensor rarer(Activation::Kind kind, const torch::Tensor& x) {
  switch (kind) {
    case Activation::kHardSilu:  // at::hardswish has other gradients at -3 and 3 than Keras
      return x * at::hardtanh(x + 3, 0, 6) / 6;
    case Activation::kHardTanh:
      return at::clamp(x, -1, 1);
    case Activation::kHardShrink:
      return at::hardshrink(x);
    case Activation::kSoftShrink:
      return at::softshrink(x);
    case Activation::kTanhShrink:
      return x - at::tanh(x);
    case Activation::kCelu:  // where both halves meet their slopes add up, as in Keras
      return at::where(x.ge(0), x, at::zeros_like(x)) + at::expm1(at::where(x.le(0), x, at::zeros_like(x)));
    case Activation::kLogSigmoid:
      return at::log_sigmoid(x);
    case Activation::kSquareplus:
      return (x + at::sqrt(at::square(x) + 4)) / 2;
    case Activation::kSparsePlus:
      return sparse_plus(x);
    case Activation::kSparseSigmoid:
      return at::clamp((x + 1) / 2, 0, 1);
    case Activation::kSparsemax:
      return sparsemax(x);
    default:
      return x;
  }
}

class ActivationModule final : public LayerModule {
 public:
  explicit ActivationModule(Activation activation) : activation_(std::move(activation)) {}
  torch::Tensor forward(const torch::Tensor& x) override { return activation_(x); }
  DependsOn depends_on() const override { return activation_.is_elementwise() ? DependsOn::kElement : DependsOn::kAll; }
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }

 private:
  Activation activation_;
};

class ActivationKind final : public LayerKind {
 public:
  explicit ActivationKind(Activation activation) : activation_(std::move(activation)) {}
  std::string_view type() const override { return "Activation"; }
  std::string_view base_name() const override { return "activation"; }
  Shape output_shape(const BuildContext& context) const override { return context.input; }
  std::shared_ptr<LayerModule> build(const BuildContext& /*context*/) const override {
    return std::make_shared<ActivationModule>(activation_);
  }

 private:
  Activation activation_;
};

}  // namespace

Activation::Activation(std::string name, Function function) : name_(std::move(name)), function_(std::move(function)) {
  if (!function_) fail<InvalidArgument>("[layers] activation \"", name_, "\": the function is empty");
}

Activation Activation::parse(std::string_view name) {
  std::string known;
  for (const Name& each : kNames) {
    if (each.name == name) return each.kind;
    known.append(known.empty() ? "" : ", ").append(each.name);
  }
  fail<NotFound>("[layers] there is no activation \"", name, "\"; there are ", known);
}

std::string_view Activation::name() const {
  if (function_) return name_;
  for (const Name& each : kNames) {
    if (each.kind == kind_) return each.name;
  }
  return "linear";
}

torch::Tensor Activation::operator()(const torch::Tensor& x) const {
  if (function_) return function_(x);
  switch (kind_) {
    case kLinear:
      return x;
    case kRelu:
      return at::relu(x);
    case kRelu6:
      return at::hardtanh(x, 0, 6);  // at::clamp has slope 1 at both ends
    case kLeakyRelu:
      return at::leaky_relu(x, kLeakySlope);
    case kElu:
      return at::elu(x);
    case kSelu:
      return at::selu(x);
    case kGelu:
      return gelu_in_one_layout(x);
    case kSigmoid:
      return at::sigmoid(x);
    case kHardSigmoid:
      return at::hardsigmoid(x);
    case kTanh:
      return at::tanh(x);
    case kSoftmax:
      return at::softmax(x, -1);
    case kLogSoftmax:
      return at::log_softmax(x, -1);
    case kSoftplus:
      return at::softplus(x);
    case kSoftsign:
      return x / (at::abs(x) + 1);
    case kSilu:
      return at::silu(x);
    case kMish:
      return at::mish(x);
    case kExponential:
      return at::exp(x);
    default:
      return rarer(kind_, x);
  }
}

torch::Tensor Activation::overwrite(torch::Tensor x) const {
  // Autograd copies around an in-place operation on a view: dearer than a new tensor.
  if (!function_ && !x.is_view()) {
    if (kind_ == kRelu) return at::relu_(x);
    if (kind_ == kSigmoid) return at::sigmoid_(x);
    if (kind_ == kTanh) return at::tanh_(x);
  }
  return (*this)(x);
}

Layer::Layer(const Activation& activation) : kind_(made_with<ActivationKind>(activation, activation)) {}

}  // namespace cohort
