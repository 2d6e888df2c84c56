// Activations with numbers of their own, and GLU.
#include "cohort/train/layers/more_activations.h"

#include <ATen/Functions.h>

#include "train/layers/support.h"

namespace cohort {

namespace {

void require_not_negative(std::string_view type, const char* name, double number) {
  if (!(number >= 0.0)) fail_option(type, name, " must be 0 or more, got ", number);
}

constexpr std::string_view kGlu = "GLU";

class GluModule final : public LayerModule {
 public:
  GluModule(int64_t axis, const BuildContext& context)
      : axis_(axis), name_(context.name), rank_(static_cast<int64_t>(context.input.size()) + 1) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    if (x.dim() == rank_ && x.is_floating_point() && x.size(axis_) % 2 == 0) {
      // LibTorch's operation leaves out what empty batches have to reach.
      const std::vector<torch::Tensor> halves = x.chunk(2, axis_);
      return x.numel() == 0 ? halves[0] * halves[1] : at::glu(x, axis_);
    }
    fail_called(name_, kGlu, x, c10::str("floating point of ", rank_, " dimensions, of which ", axis_, " is even"));
  }

 private:
  int64_t axis_;  // counted from the batch
  std::string name_;
  int64_t rank_;
};

class GluKind final : public LayerKind {
 public:
  explicit GluKind(int64_t axis) : axis_(axis) {}
  std::string_view type() const override { return kGlu; }
  std::string_view base_name() const override { return "glu"; }
  Shape output_shape(const BuildContext& context) const override {
    const int64_t dimension = dimension_of(context);
    const auto rank = static_cast<int64_t>(context.input.size()) + 1;
    Shape output = context.input;
    if (dimension > 0 && dimension < rank) {
      int64_t& size = output[static_cast<std::size_t>(dimension) - 1];
      if (size < 0) return output;
      if (size % 2 == 0 && size > 0) {
        size /= 2;
        return output;
      }
    }
    fail_input(context.name, kGlu, to_text(context.input) + " an example", c10::str("an even dimension ", axis_));
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<GluModule>(dimension_of(context), context);
  }

 private:
  int64_t dimension_of(const BuildContext& context) const {
    return axis_ < 0 ? axis_ + static_cast<int64_t>(context.input.size()) + 1 : axis_;
  }

  int64_t axis_;
};

}  // namespace

Activation Celu(double alpha) {
  if (!(alpha > 0.0)) fail_option("Celu", "alpha must be positive, got ", alpha);
  return Activation(c10::str("celu(alpha=", alpha, ")"), [alpha](const torch::Tensor& x) {
    const torch::Tensor none = at::zeros_like(x);  // the slopes of both halves add up at 0, as in Keras
    return at::where(x.ge(0), x, none) + at::expm1(at::where(x.le(0), x, none) / alpha) * alpha;
  });
}

Activation HardShrink(double threshold) {
  require_not_negative("HardShrink", "threshold", threshold);
  return Activation(c10::str("hard_shrink(threshold=", threshold, ")"),
                    [threshold](const torch::Tensor& x) { return at::hardshrink(x, threshold); });
}

Activation SoftShrink(double threshold) {
  require_not_negative("SoftShrink", "threshold", threshold);
  return Activation(c10::str("soft_shrink(threshold=", threshold, ")"),
                    [threshold](const torch::Tensor& x) { return at::softshrink(x, threshold); });
}

Activation Squareplus(double b) {
  require_not_negative("Squareplus", "b", b);
  return Activation(c10::str("squareplus(b=", b, ")"),
                    [b](const torch::Tensor& x) { return (x + at::sqrt(at::square(x) + b)) / 2; });
}

Activation Threshold(double threshold, double value) {
  return Activation(
      c10::str("threshold(threshold=", threshold, ", value=", value, ")"),
      [threshold, value](const torch::Tensor& x) { return at::where(x.gt(threshold), x, at::full_like(x, value)); });
}

Layer GLU(int64_t axis) {
  return Layer(std::make_shared<GluKind>(axis));
}

}  // namespace cohort
