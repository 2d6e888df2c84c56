// Pooling to an output of a given size, by LibTorch's operations.
#include "cohort/train/layers/adaptive_pooling.h"

#include <ATen/Functions.h>

#include "train/layers/support.h"

namespace cohort {

namespace {

// The sort of adaptive pooling, and the sizes of its output.
struct AdaptiveWindows {
  bool maximum;
  Shape sizes;

  int64_t axes() const { return static_cast<int64_t>(sizes.size()); }
};

class AdaptivePoolingModule final : public LayerModule {
 public:
  AdaptivePoolingModule(AdaptiveWindows windows, std::string_view type, const BuildContext& context)
      : windows_(std::move(windows)), type_(type), name_(context.name), channels_(context.input[0]) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, type_, x, windows_.axes() + 2, 1, channels_);
    const Shape& sizes = windows_.sizes;
    switch (windows_.axes()) {
      case 1:
        return windows_.maximum ? std::get<0>(at::adaptive_max_pool1d(x, sizes)) : at::adaptive_avg_pool1d(x, sizes);
      case 2:
        return windows_.maximum ? std::get<0>(at::adaptive_max_pool2d(x, sizes)) : at::adaptive_avg_pool2d(x, sizes);
      default:
        return windows_.maximum ? std::get<0>(at::adaptive_max_pool3d(x, sizes)) : at::adaptive_avg_pool3d(x, sizes);
    }
  }

 private:
  AdaptiveWindows windows_;
  std::string type_, name_;
  int64_t channels_;
};

class AdaptivePoolingKind final : public LayerKind {
 public:
  explicit AdaptivePoolingKind(AdaptiveWindows windows)
      : windows_(std::move(windows)),
        type_(c10::str(windows_.maximum ? "AdaptiveMaxPooling" : "AdaptiveAveragePooling", windows_.axes(), "D")),
        base_name_(
            c10::str(windows_.maximum ? "adaptive_max_pooling" : "adaptive_average_pooling", windows_.axes(), "d")) {
    for (const int64_t size : windows_.sizes) {
      if (size <= 0) fail_option(type_, "output_size must be positive, got ", to_text(windows_.sizes));
    }
  }
  std::string_view type() const override { return type_; }
  std::string_view base_name() const override { return base_name_; }
  Shape output_shape(const BuildContext& context) const override {
    if (context.input.size() != windows_.sizes.size() + 1) {
      fail_input(context.name, type_, to_text(context.input) + " an example",
                 c10::str("channels and ", windows_.axes(), " dimensions"));
    }
    Shape output = windows_.sizes;
    output.insert(output.begin(), context.input[0]);
    return output;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<AdaptivePoolingModule>(windows_, type_, context);
  }

 private:
  AdaptiveWindows windows_;
  std::string type_, base_name_;
};

template <typename Options>
Layer adaptive_pooling(bool maximum, const Options& options) {
  Shape sizes;
  if constexpr (requires { options.output_size.depth; }) {
    sizes = {options.output_size.depth, options.output_size.height, options.output_size.width};
  } else if constexpr (requires { options.output_size.height; }) {
    sizes = {options.output_size.height, options.output_size.width};
  } else {
    sizes = {options.output_size};
  }
  return Layer(made_with<AdaptivePoolingKind>(options, AdaptiveWindows{.maximum = maximum, .sizes = std::move(sizes)}),
               options.name);
}

}  // namespace

Layer AdaptiveMaxPooling1D(const AdaptivePooling1DOptions& options) {
  return adaptive_pooling(/*maximum=*/true, options);
}

Layer AdaptiveAveragePooling1D(const AdaptivePooling1DOptions& options) {
  return adaptive_pooling(/*maximum=*/false, options);
}

Layer AdaptiveMaxPooling2D(const AdaptivePooling2DOptions& options) {
  return adaptive_pooling(/*maximum=*/true, options);
}

Layer AdaptiveAveragePooling2D(const AdaptivePooling2DOptions& options) {
  return adaptive_pooling(/*maximum=*/false, options);
}

Layer AdaptiveMaxPooling3D(const AdaptivePooling3DOptions& options) {
  return adaptive_pooling(/*maximum=*/true, options);
}

Layer AdaptiveAveragePooling3D(const AdaptivePooling3DOptions& options) {
  return adaptive_pooling(/*maximum=*/false, options);
}

}  // namespace cohort
