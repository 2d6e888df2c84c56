// Pooling of volumes [batch, channels, depth, height, width].
#include "cohort/train/layers/pooling_3d.h"

#include <ATen/Functions.h>

#include <array>
#include <limits>

#include "train/layers/support.h"

namespace cohort {

namespace {

using Windows3 = std::array<WindowShape, 3>;

class Pooling3DModule final : public LayerModule {
 public:
  Pooling3DModule(bool maximum, std::string_view type, const Windows3& windows, const BuildContext& context)
      : maximum_(maximum), type_(type), windows_(windows), name_(context.name), channels_(context.input[0]) {
    for (const WindowShape& window : windows_) {
      size_.push_back(window.size);
      stride_.push_back(window.stride);
    }
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, type_, x, 5, 1, channels_);
    if (x.size(0) == 0) return empty_from({x}, output(x));
    std::vector<int64_t> sides;
    bool padded = false;
    for (std::size_t i = 3; i-- > 0;) {  // the last dimension comes first
      const auto [before, after] = windows_[i].pads(x.size(static_cast<int64_t>(i) + 2));
      sides.insert(sides.end(), {before, after});
      padded = padded || before + after > 0;
    }
    if (maximum_) {
      constexpr double kLowest = -std::numeric_limits<double>::infinity();
      return at::max_pool3d(padded ? at::constant_pad_nd(x, sides, kLowest) : x, size_, stride_);
    }
    // Padding takes no part in averages: sums over zeros, divided by how many elements are none of them.
    const auto means = [&](const torch::Tensor& values) {
      return at::avg_pool3d(padded ? at::constant_pad_nd(values, sides) : values, size_, stride_);
    };
    if (!padded) return means(x);
    return means(x) / means(at::ones({1, 1, x.size(2), x.size(3), x.size(4)}, x.options().requires_grad(false)));
  }

 private:
  std::vector<int64_t> output(const torch::Tensor& x) const {
    std::vector<int64_t> shape = {x.size(0), x.size(1)};
    for (std::size_t i = 0; i < 3; ++i) shape.push_back(windows_[i].output(x.size(static_cast<int64_t>(i) + 2)));
    return shape;
  }

  bool maximum_;
  std::string_view type_;
  Windows3 windows_;
  std::string name_;
  int64_t channels_;
  std::vector<int64_t> size_, stride_;
};

class Pooling3DKind final : public LayerKind {
 public:
  Pooling3DKind(bool maximum, Pooling3DOptions options) : maximum_(maximum), options_(std::move(options)) {
    const Size3 strides = options_.strides.value_or(options_.pool_size);
    for (const auto& [name, size] : {std::pair("pool_size", options_.pool_size), std::pair("strides", strides)}) {
      if (size.depth > 0 && size.height > 0 && size.width > 0) continue;
      fail_option(type(), name, " must be positive, got ", size.depth, " x ", size.height, " x ", size.width);
    }
    check_padding(type(), options_.padding);
    const auto window = [&](int64_t Size3::*part) {
      return WindowShape{
          .size = options_.pool_size.*part, .stride = strides.*part, .padding = pads_of(options_.padding)};
    };
    windows_ = {window(&Size3::depth), window(&Size3::height), window(&Size3::width)};
  }
  std::string_view type() const override { return maximum_ ? "MaxPooling3D" : "AveragePooling3D"; }
  std::string_view base_name() const override { return maximum_ ? "max_pooling3d" : "average_pooling3d"; }
  Shape output_shape(const BuildContext& context) const override {
    bool fits = context.input.size() == 4;
    Shape output = {fits ? context.input[0] : -1};
    for (std::size_t i = 0; fits && i < 3; ++i) {
      output.push_back(windows_[i].output(context.input[i + 1]));
      fits = output.back() != 0;
    }
    if (fits) return output;
    const Size3& size = options_.pool_size;
    fail_input(
        context.name, type(), to_text(context.input) + " an example",
        c10::str("[channels, depth, height, width] of at least ", size.depth, " x ", size.height, " x ", size.width));
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<Pooling3DModule>(maximum_, type(), windows_, context);
  }

 private:
  bool maximum_;
  Pooling3DOptions options_;
  Windows3 windows_;
};

class GlobalPooling3DModule final : public LayerModule {
 public:
  GlobalPooling3DModule(bool maximum, std::string_view type, bool keepdims, const BuildContext& context)
      : maximum_(maximum), type_(type), keepdims_(keepdims), name_(context.name), channels_(context.input[0]) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, type_, x, 5, 1, channels_);
    return maximum_ ? x.amax({2, 3, 4}, keepdims_) : x.mean({2, 3, 4}, keepdims_);
  }

 private:
  bool maximum_;
  std::string_view type_;
  bool keepdims_;
  std::string name_;
  int64_t channels_;
};

class GlobalPooling3DKind final : public LayerKind {
 public:
  GlobalPooling3DKind(bool maximum, bool keepdims) : maximum_(maximum), keepdims_(keepdims) {}
  std::string_view type() const override { return maximum_ ? "GlobalMaxPooling3D" : "GlobalAveragePooling3D"; }
  std::string_view base_name() const override { return maximum_ ? "global_max_pooling3d" : "global_average_pooling3d"; }
  Shape output_shape(const BuildContext& context) const override {
    if (context.input.size() != 4) {
      fail_input(context.name, type(), to_text(context.input) + " an example", "[channels, depth, height, width]");
    }
    if (keepdims_) return {context.input[0], 1, 1, 1};
    return {context.input[0]};
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<GlobalPooling3DModule>(maximum_, type(), keepdims_, context);
  }

 private:
  bool maximum_;
  bool keepdims_;
};

}  // namespace

Layer MaxPooling3D(const Pooling3DOptions& options) {
  return Layer(made_with<Pooling3DKind>(options, /*maximum=*/true, options), options.name);
}

Layer AveragePooling3D(const Pooling3DOptions& options) {
  return Layer(made_with<Pooling3DKind>(options, /*maximum=*/false, options), options.name);
}

Layer GlobalMaxPooling3D(const GlobalPooling3DOptions& options) {
  return Layer(made_with<GlobalPooling3DKind>(options, /*maximum=*/true, options.keepdims), options.name);
}

Layer GlobalAveragePooling3D(const GlobalPooling3DOptions& options) {
  return Layer(made_with<GlobalPooling3DKind>(options, /*maximum=*/false, options.keepdims), options.name);
}

}  // namespace cohort
