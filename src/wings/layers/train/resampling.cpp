// UpSampling2D, ZeroPadding2D and Cropping2D: images of another size without parameters.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "cohort/train/layers/resampling.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

// Keys' kernel with a = -0.5, at a distance from the pixel.
float keys_kernel(float x) {
  if (x >= 2.0F) return 0.0F;
  if (x >= 1.0F) return ((-0.5F * x + 2.5F) * x - 4.0F) * x + 2.0F;
  return ((1.5F * x - 2.5F) * x) * x + 1.0F;
}

// Returns how much of each of the `in` rows is in each new one, [in * factor, in]. As in TensorFlow the places are
// rounded to steps of 1 / 1024, and rows outside have no weight.
torch::Tensor bicubic_matrix(int64_t in, int64_t factor) {
  constexpr float kSteps = 1024.0F;
  const float scale = 1.0F / static_cast<float>(factor);
  torch::Tensor matrix = at::zeros({in * factor, in});
  auto weights = matrix.accessor<float, 2>();
  for (int64_t i = 0; i < in * factor; ++i) {
    const float place = (static_cast<float>(i) + 0.5F) * scale - 0.5F;
    const float below = std::floor(place);
    const float step = std::nearbyint((place - below) * kSteps) / kSteps;
    const auto middle = static_cast<int64_t>(below);
    float sum = 0.0F;
    for (int64_t from = std::max<int64_t>(middle - 1, 0); from <= std::min(middle + 2, in - 1); ++from) {
      weights[i][from] = keys_kernel(std::abs(static_cast<float>(from - middle) - step));
      sum += weights[i][from];
    }
    for (int64_t from = std::max<int64_t>(middle - 1, 0); from <= std::min(middle + 2, in - 1); ++from) {
      weights[i][from] /= sum;
    }
  }
  return matrix;
}

class UpSamplingModule final : public LayerModule {
 public:
  UpSamplingModule(UpSampling2DOptions options, const BuildContext& context)
      : options_(std::move(options)), name_(context.name), channels_(context.input[0]) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, "UpSampling2D", x, 4, 1, channels_);
    const std::vector<int64_t> size = {x.size(2) * options_.size.height, x.size(3) * options_.size.width};
    if (x.numel() == 0) return empty_from({x}, {x.size(0), x.size(1), size[0], size[1]});
    // LibTorch 1.13 computes positions in the type of the pixels. bfloat16 cannot hold those of large images.
    const bool half = x.device().is_cpu() && (x.scalar_type() == torch::kBFloat16 || x.scalar_type() == torch::kHalf);
    return half ? grow(x.to(torch::kFloat), size).to(x.scalar_type()) : grow(x, size);
  }

 private:
  torch::Tensor grow(const torch::Tensor& x, torch::IntArrayRef size) const {
    if (options_.interpolation == UpSampling2DOptions::Interpolation::kNearest) return at::upsample_nearest2d(x, size);
    if (options_.interpolation == UpSampling2DOptions::Interpolation::kBicubic) {
      const torch::Tensor rows = bicubic_matrix(x.size(2), options_.size.height).to(x.options().requires_grad(false));
      const torch::Tensor columns = bicubic_matrix(x.size(3), options_.size.width).to(x.options().requires_grad(false));
      return at::matmul(at::matmul(rows, x), columns.t());
    }
    return at::upsample_bilinear2d(x, size, /*align_corners=*/false);
  }

  UpSampling2DOptions options_;
  std::string name_;
  int64_t channels_;
};

class UpSamplingKind final : public LayerKind {
 public:
  explicit UpSamplingKind(UpSampling2DOptions options) : options_(std::move(options)) {
    if (options_.size.height > 0 && options_.size.width > 0) return;
    fail_option(type(), "size must be positive, got ", options_.size.height, " x ", options_.size.width);
  }
  std::string_view type() const override { return "UpSampling2D"; }
  std::string_view base_name() const override { return "up_sampling2d"; }
  Shape output_shape(const BuildContext& context) const override {
    const Shape image = image_shape(context, type(), /*may_add_channel=*/false);
    const auto times = [](int64_t size, int64_t factor) { return size < 0 ? size : size * factor; };
    return {image[0], times(image[1], options_.size.height), times(image[2], options_.size.width)};
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<UpSamplingModule>(options_, context);
  }

 private:
  UpSampling2DOptions options_;
};

// Grows images where the numbers are positive, and cuts where they are negative.
class BorderModule final : public LayerModule {
 public:
  BorderModule(const Border2& border, std::string_view type, const BuildContext& context)
      : border_(border), type_(type), name_(context.name), channels_(context.input[0]) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, type_, x, 4, 1, channels_);
    return at::constant_pad_nd(x, {border_.left, border_.right, border_.top, border_.bottom});
  }

 private:
  Border2 border_;
  std::string_view type_;
  std::string name_;
  int64_t channels_;
};

class BorderKind final : public LayerKind {
 public:
  BorderKind(const Border2& border, bool cuts) : border_(border), cuts_(cuts) {
    for (const int64_t size : {border.top, border.bottom, border.left, border.right}) {
      if (size < 0) fail_option(type(), "the numbers of rows and columns must be 0 or more, got ", size);
    }
  }
  std::string_view type() const override { return cuts_ ? "Cropping2D" : "ZeroPadding2D"; }
  std::string_view base_name() const override { return cuts_ ? "cropping2d" : "zero_padding2d"; }
  Shape output_shape(const BuildContext& context) const override {
    const Shape image = image_shape(context, type(), /*may_add_channel=*/false);
    const int64_t sign = cuts_ ? -1 : 1;
    Shape output = {image[0], image[1] < 0 ? -1 : image[1] + sign * (border_.top + border_.bottom),
                    image[2] < 0 ? -1 : image[2] + sign * (border_.left + border_.right)};
    if ((image[1] >= 0 && output[1] <= 0) || (image[2] >= 0 && output[2] <= 0)) {
      fail_input(context.name, type(), to_text(context.input) + " an example",
                 c10::str("images of more than ", border_.top + border_.bottom, " x ", border_.left + border_.right));
    }
    return output;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    const Border2 cut(-border_.top, -border_.bottom, -border_.left, -border_.right);
    return std::make_shared<BorderModule>(cuts_ ? cut : border_, type(), context);
  }

 private:
  Border2 border_;
  bool cuts_;
};

}  // namespace

Layer UpSampling2D(const UpSampling2DOptions& options) {
  return make_layer<UpSamplingKind>(options);
}

Layer ZeroPadding2D(const Border2& padding) {
  return Layer(made_with<BorderKind>(padding, padding, /*cuts=*/false));
}

Layer Cropping2D(const Border2& cropping) {
  return Layer(made_with<BorderKind>(cropping, cropping, /*cuts=*/true));
}

}  // namespace cohort
