// Pooling of sequences: windows over [batch, channels, length], as Conv1D has it, and whole sequences [batch, steps,
// size], as recurrent layers have them, whose masked steps take no part.
#include <ATen/Functions.h>

#include <array>
#include <limits>

#include "cohort/train/layers/pooling_1d.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

class Pooling1DModule final : public LayerModule {
 public:
  Pooling1DModule(bool maximum, std::string_view type, const WindowShape& window, const BuildContext& context)
      : maximum_(maximum), type_(type), window_(window), name_(context.name), channels_(context.input[0]) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, type_, x, 3, 1, channels_);
    const auto pads = window_.pads(x.size(2));
    const std::array<int64_t, 2> sides = {pads.first, pads.second};
    if (maximum_) {
      constexpr double kLowest = -std::numeric_limits<double>::infinity();
      return at::max_pool1d(at::constant_pad_nd(x, sides, kLowest), {window_.size}, {window_.stride});
    }
    // Padding takes no part in averages: sums over zeros, divided by how many elements are none of them.
    const auto means = [&](const torch::Tensor& values) {
      return at::avg_pool1d(at::constant_pad_nd(values, sides), {window_.size}, {window_.stride});
    };
    if (sides[0] + sides[1] == 0) return means(x);
    return means(x) / means(torch::ones({1, 1, x.size(2)}, x.options().requires_grad(false)));
  }

 private:
  bool maximum_;
  std::string_view type_;
  WindowShape window_;
  std::string name_;
  int64_t channels_;
};

class Pooling1DKind final : public LayerKind {
 public:
  Pooling1DKind(bool maximum, const Pooling1DOptions& options)
      : maximum_(maximum),
        window_{.size = options.pool_size,
                .stride = options.strides.value_or(options.pool_size),
                .padding = pads_of(options.padding)} {
    if (window_.size <= 0) fail_option(type(), "pool_size must be positive, got ", window_.size);
    if (window_.stride <= 0) fail_option(type(), "strides must be positive, got ", window_.stride);
    check_padding(type(), options.padding);
  }
  std::string_view type() const override { return maximum_ ? "MaxPooling1D" : "AveragePooling1D"; }
  std::string_view base_name() const override { return maximum_ ? "max_pooling1d" : "average_pooling1d"; }
  Shape output_shape(const BuildContext& context) const override {
    if (context.input.size() != 2 || window_.output(context.input[1]) == 0) {
      fail_input(context.name, type(), to_text(context.input) + " an example",
                 c10::str("[channels, length] with a length of at least ", window_.size));
    }
    return {context.input[0], window_.output(context.input[1])};
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<Pooling1DModule>(maximum_, type(), window_, context);
  }

 private:
  bool maximum_;
  WindowShape window_;
};

class GlobalPooling1DModule final : public LayerModule {
 public:
  GlobalPooling1DModule(bool maximum, std::string_view type, const GlobalPooling1DOptions& options,
                        const BuildContext& context)
      : maximum_(maximum),
        type_(type),
        keepdims_(options.keepdims),
        steps_(options.channels_first ? 2 : 1),
        name_(context.name) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    check(x);
    return maximum_ ? x.amax({steps_}, keepdims_) : x.mean({steps_}, keepdims_);
  }
  torch::Tensor forward_masked(const torch::Tensor& x, const torch::Tensor& mask) override {
    check(x);
    const torch::Tensor counts = mask.unsqueeze(steps_ == 1 ? -1 : 1);
    if (maximum_) {
      constexpr double kLowest = -std::numeric_limits<double>::infinity();
      return x.masked_fill(counts.logical_not(), kLowest).amax({steps_}, keepdims_);
    }
    const torch::Tensor weights = counts.to(x.scalar_type());
    return (x * weights).sum({steps_}, keepdims_) / weights.sum({steps_}, keepdims_);
  }

 private:
  void check(const torch::Tensor& x) const {
    if (x.dim() != 3 || !x.is_floating_point()) fail_called(name_, type_, x, "floating point of three dimensions");
  }

  bool maximum_;
  std::string_view type_;
  bool keepdims_;
  int64_t steps_;  // the dimension
  std::string name_;
};

class GlobalPooling1DKind final : public LayerKind {
 public:
  GlobalPooling1DKind(bool maximum, GlobalPooling1DOptions options) : maximum_(maximum), options_(std::move(options)) {}
  std::string_view type() const override { return maximum_ ? "GlobalMaxPooling1D" : "GlobalAveragePooling1D"; }
  std::string_view base_name() const override { return maximum_ ? "global_max_pooling1d" : "global_average_pooling1d"; }
  Shape output_shape(const BuildContext& context) const override {
    if (context.input.size() != 2) {
      fail_input(context.name, type(), to_text(context.input) + " an example", "two dimensions");
    }
    const int64_t size = context.input[options_.channels_first ? 0 : 1];
    if (!options_.keepdims) return {size};
    return options_.channels_first ? Shape{size, 1} : Shape{1, size};
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<GlobalPooling1DModule>(maximum_, type(), options_, context);
  }

 private:
  bool maximum_;
  GlobalPooling1DOptions options_;
};

}  // namespace

Layer MaxPooling1D(const Pooling1DOptions& options) {
  return Layer(made_with<Pooling1DKind>(options, /*maximum=*/true, options), options.name);
}

Layer AveragePooling1D(const Pooling1DOptions& options) {
  return Layer(made_with<Pooling1DKind>(options, /*maximum=*/false, options), options.name);
}

Layer GlobalMaxPooling1D(const GlobalPooling1DOptions& options) {
  return Layer(made_with<GlobalPooling1DKind>(options, /*maximum=*/true, options), options.name);
}

Layer GlobalAveragePooling1D(const GlobalPooling1DOptions& options) {
  return Layer(made_with<GlobalPooling1DKind>(options, /*maximum=*/false, options), options.name);
}

}  // namespace cohort
