// RandomFlip, RandomCrop, RandomContrast and RandomBrightness.
#include <algorithm>

#include "wings/vision/train/random_image.h"

namespace cohort {

namespace {

class FlipModule final : public RandomImageModule {
 public:
  static constexpr std::string_view kType = "RandomFlip";
  static constexpr std::string_view kBaseName = "random_flip";
  FlipModule(const RandomFlipOptions& options, const BuildContext& context)
      : RandomImageModule(kType, context), options_(options) {}

 protected:
  torch::Tensor changed(const torch::Tensor& x) const override {
    const auto mirrored = [](const torch::Tensor& images, int64_t dim) {
      return at::where(draw(images, {0.0, 1.0}).lt(0.5).view({-1, 1, 1, 1}), images.flip({dim}), images);
    };
    const torch::Tensor y = options_.horizontal ? mirrored(x, 3) : x;
    return options_.vertical ? mirrored(y, 2) : y;
  }

 private:
  RandomFlipOptions options_;
};

class CropModule final : public RandomImageModule {
 public:
  static constexpr std::string_view kType = "RandomCrop";
  CropModule(const RandomCropParts& size, const BuildContext& context)
      : RandomImageModule(kType, context), size_(size) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    check(x);
    if (is_training() && x.size(0) > 0 && x.size(2) >= size_.height && x.size(3) >= size_.width) {
      return RandomImageModule::forward(x);
    }
    return middle(x);
  }

 protected:
  // One place for the batch, which stays on the device.
  torch::Tensor changed(const torch::Tensor& x) const override { return cut(cut(x, 2, size_.height), 3, size_.width); }

 private:
  static torch::Tensor cut(const torch::Tensor& x, int64_t dim, int64_t size) {
    const auto starts = static_cast<double>(x.size(dim) - size + 1);
    const torch::Tensor start = at::floor(draw(x.slice(0, 0, 1), {0.0, starts})).clamp_max(starts - 1);
    const torch::Tensor places = at::arange(size, start.options()) + start;
    return x.index_select(dim, places.to(torch::kLong));
  }

  // Returns the largest part in the middle that has the shape, in the size.
  torch::Tensor middle(const torch::Tensor& x) const {
    if (x.size(0) == 0) return empty_from({x}, {0, x.size(1), size_.height, size_.width});
    const auto part = [](int64_t own, int64_t other, int64_t wanted, int64_t wanted_other) {
      const double size = static_cast<double>(other * wanted) / static_cast<double>(wanted_other);
      return std::clamp<int64_t>(static_cast<int64_t>(size), 1, own);
    };
    const int64_t rows = part(x.size(2), x.size(3), size_.height, size_.width);
    const int64_t columns = part(x.size(3), x.size(2), size_.width, size_.height);
    torch::Tensor y = x.narrow(2, (x.size(2) - rows) / 2, rows).narrow(3, (x.size(3) - columns) / 2, columns);
    if (rows == size_.height && columns == size_.width) return y;
    const std::vector<int64_t> size = {size_.height, size_.width};
    if (y.scalar_type() == torch::kFloat || y.scalar_type() == torch::kDouble) {
      return at::upsample_bilinear2d(y, size, /*align_corners=*/false);
    }
    return at::upsample_bilinear2d(y.to(torch::kFloat), size, /*align_corners=*/false).to(y.scalar_type());
  }

  RandomCropParts size_;
};

class CropKind final : public LayerKind {
 public:
  explicit CropKind(const RandomCropParts& size) : size_(size) {
    if (size_.height > 0 && size_.width > 0) return;
    fail_option(type(), "height and width must be positive, got ", size_.height, " x ", size_.width);
  }
  std::string_view type() const override { return CropModule::kType; }
  std::string_view base_name() const override { return "random_crop"; }
  Shape output_shape(const BuildContext& context) const override {
    return {image_shape(context, type(), /*may_add_channel=*/false)[0], size_.height, size_.width};
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<CropModule>(size_, context);
  }

 private:
  RandomCropParts size_;
};

class ContrastModule final : public RandomImageModule {
 public:
  static constexpr std::string_view kType = "RandomContrast";
  static constexpr std::string_view kBaseName = "random_contrast";
  ContrastModule(const RandomContrastOptions& options, const BuildContext& context)
      : RandomImageModule(kType, context), options_(options) {}

 protected:
  torch::Tensor changed(const torch::Tensor& x) const override {
    const torch::Tensor factor = draw(x, {1.0 - options_.lower, 1.0 + options_.upper}).view({-1, 1, 1, 1});
    const torch::Tensor mean = x.mean({2, 3}, /*keepdim=*/true);
    return at::clamp((x - mean) * factor.to(x.scalar_type()) + mean, options_.value_range.low,
                     options_.value_range.high);
  }

 private:
  RandomContrastOptions options_;
};

class BrightnessModule final : public RandomImageModule {
 public:
  static constexpr std::string_view kType = "RandomBrightness";
  static constexpr std::string_view kBaseName = "random_brightness";
  BrightnessModule(const RandomBrightnessOptions& options, const BuildContext& context)
      : RandomImageModule(kType, context), options_(options) {}

 protected:
  torch::Tensor changed(const torch::Tensor& x) const override {
    const RandomRange& range = options_.value_range;
    const torch::Tensor more = draw(x, options_.factor).view({-1, 1, 1, 1}).to(x.scalar_type());
    return at::clamp(x + more * (range.high - range.low), range.low, range.high);
  }

 private:
  RandomBrightnessOptions options_;
};

void check_values(std::string_view type, const RandomRange& range) {
  if (range.low < range.high) return;
  fail_option(type, "value_range must have a smaller and a larger number, got ", range.low, " and ", range.high);
}

}  // namespace

Layer RandomFlip(const RandomFlipOptions& options) {
  if (!options.horizontal && !options.vertical)
    fail_option(FlipModule::kType, "neither horizontal nor vertical is set");
  return make_random_image<FlipModule>(options);
}

Layer RandomCrop(int64_t height, int64_t width, std::string name) {
  const RandomCropParts options = {.height = height, .width = width};
  return Layer(made_with<CropKind>(options, options), std::move(name));
}

Layer RandomContrast(const RandomContrastOptions& options) {
  if (!(options.lower >= 0.0 && options.lower <= 1.0)) {
    fail_option(ContrastModule::kType, "lower must be in [0, 1], got ", options.lower);
  }
  if (!(options.upper >= 0.0)) fail_option(ContrastModule::kType, "upper must be 0 or more, got ", options.upper);
  check_values(ContrastModule::kType, options.value_range);
  return make_random_image<ContrastModule>(options);
}

Layer RandomBrightness(const RandomBrightnessOptions& options) {
  check_range(BrightnessModule::kType, "factor", options.factor, -1.0, 1.0);
  check_values(BrightnessModule::kType, options.value_range);
  return make_random_image<BrightnessModule>(options);
}

}  // namespace cohort
