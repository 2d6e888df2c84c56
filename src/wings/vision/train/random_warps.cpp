// RandomRotation, RandomTranslation and RandomZoom: each image is read at the places that an affine map gives its
// pixels, as TensorFlow's ImageProjectiveTransformV3 does.
#include <cmath>

#include "wings/vision/train/random_image.h"

namespace cohort {

namespace {

// The options that all three have.
struct WarpPlan {
  FillMode fill_mode = FillMode::kReflect;
  WarpInterpolation interpolation = WarpInterpolation::kBilinear;
  double fill_value = 0.0;
};

// The places in the images that the pixels are read from: x is a[0] * column + a[1] * row + a[2], and y likewise by b.
struct AffineMap {
  std::array<torch::Tensor, 3> a, b;  // [batch]
};

template <typename Options>
WarpPlan warp_of(const Options& options) {
  return {.fill_mode = options.fill_mode, .interpolation = options.interpolation, .fill_value = options.fill_value};
}

// Returns places within the image for those beyond it.
torch::Tensor within(const torch::Tensor& place, int64_t size, FillMode mode) {
  if (mode == FillMode::kConstant) return place;
  const auto last = static_cast<double>(size - 1);
  if (mode == FillMode::kNearest || size == 1) return at::clamp(place, 0.0, last);
  const auto length = static_cast<double>(size);
  torch::Tensor before, behind;
  if (mode == FillMode::kReflect) {
    const double period = 2.0 * length;
    before = place + at::trunc(-place / period) * period;
    before = at::where(before.lt(-length), before + period, -before - 1);
    behind = place - at::trunc(place / period) * period;
    behind = at::where(behind.ge(length), -behind + (period - 1), behind);
  } else {
    before = place + (at::trunc(-place / last) + 1) * length;
    behind = place - at::trunc(place / last) * length;
  }
  return at::clamp(at::where(place.lt(0), before, at::where(place.gt(last), behind, place)), 0.0, last);
}

// Rounds halves away from zero.
torch::Tensor rounded(const torch::Tensor& place) {
  return at::where(place.lt(0), at::ceil(place - 0.5), at::floor(place + 0.5));
}

class PixelReader {
 public:
  PixelReader(const torch::Tensor& x, double fill)
      : flat_(x.flatten(2)), height_(x.size(2)), width_(x.size(3)), fill_(fill) {}

  // Returns the pixels in whole rows and columns, [batch, height, width], as [batch, channels, height, width].
  torch::Tensor operator()(const torch::Tensor& row, const torch::Tensor& column) const {
    const torch::Tensor inside =
        row.ge(0).logical_and(row.lt(height_)).logical_and(column.ge(0)).logical_and(column.lt(width_));
    const torch::Tensor index =
        at::clamp(row, 0, height_ - 1).to(torch::kLong) * width_ + at::clamp(column, 0, width_ - 1).to(torch::kLong);
    const int64_t batch = flat_.size(0);
    const torch::Tensor values =
        flat_.gather(2, index.view({batch, 1, -1}).expand({batch, flat_.size(1), height_ * width_}))
            .view({batch, flat_.size(1), height_, width_});
    return at::where(inside.unsqueeze(1), values, at::full({}, fill_, values.options().requires_grad(false)));
  }

 private:
  torch::Tensor flat_;
  int64_t height_, width_;
  double fill_;
};

torch::Tensor warped(const torch::Tensor& x, const AffineMap& map, const WarpPlan& warp) {
  const auto numbers = x.options().dtype(torch::kFloat).requires_grad(false);
  const int64_t height = x.size(2);
  const int64_t width = x.size(3);
  const torch::Tensor rows = at::arange(height, numbers).view({1, height, 1});
  const torch::Tensor columns = at::arange(width, numbers).view({1, 1, width});
  const auto places = [&](const std::array<torch::Tensor, 3>& by) {
    return by[0].view({-1, 1, 1}) * columns + by[1].view({-1, 1, 1}) * rows + by[2].view({-1, 1, 1});
  };
  const torch::Tensor across = within(places(map.a), width, warp.fill_mode);
  const torch::Tensor down = within(places(map.b), height, warp.fill_mode);
  const PixelReader read(x, warp.fill_value);
  if (warp.interpolation == WarpInterpolation::kNearest) return read(rounded(down), rounded(across));
  const torch::Tensor left = at::floor(across);
  const torch::Tensor top = at::floor(down);
  const torch::Tensor to_right = (across - left).unsqueeze(1).to(x.scalar_type());
  const torch::Tensor to_bottom = (down - top).unsqueeze(1).to(x.scalar_type());
  const torch::Tensor above = read(top, left) * (1 - to_right) + read(top, left + 1) * to_right;
  const torch::Tensor below = read(top + 1, left) * (1 - to_right) + read(top + 1, left + 1) * to_right;
  return above * (1 - to_bottom) + below * to_bottom;
}

class RotationModule final : public RandomImageModule {
 public:
  static constexpr std::string_view kType = "RandomRotation";
  static constexpr std::string_view kBaseName = "random_rotation";
  RotationModule(const RandomRotationOptions& options, const BuildContext& context)
      : RandomImageModule(kType, context), options_(options) {}

 protected:
  torch::Tensor changed(const torch::Tensor& x) const override {
    const torch::Tensor angle = draw(x, options_.factor) * (2.0 * M_PI);
    const torch::Tensor cosine = at::cos(angle);
    const torch::Tensor sine = at::sin(angle);
    const double middle_x = 0.5 * static_cast<double>(x.size(3) - 1);
    const double middle_y = 0.5 * static_cast<double>(x.size(2) - 1);
    const AffineMap map{.a = {cosine, -sine, -cosine * middle_x + sine * middle_y + middle_x},
                        .b = {sine, cosine, -sine * middle_x - cosine * middle_y + middle_y}};
    return warped(x, map, warp_of(options_));
  }

 private:
  RandomRotationOptions options_;
};

class TranslationModule final : public RandomImageModule {
 public:
  static constexpr std::string_view kType = "RandomTranslation";
  static constexpr std::string_view kBaseName = "random_translation";
  TranslationModule(const RandomTranslationOptions& options, const BuildContext& context)
      : RandomImageModule(kType, context), options_(options) {}

 protected:
  torch::Tensor changed(const torch::Tensor& x) const override {
    const torch::Tensor down = draw(x, options_.height_factor) * static_cast<double>(x.size(2));
    const torch::Tensor right = draw(x, options_.width_factor) * static_cast<double>(x.size(3));
    const torch::Tensor ones = at::ones_like(down);
    const torch::Tensor zeros = at::zeros_like(down);
    return warped(x, {.a = {ones, zeros, -right}, .b = {zeros, ones, -down}}, warp_of(options_));
  }

 private:
  RandomTranslationOptions options_;
};

class ZoomModule final : public RandomImageModule {
 public:
  static constexpr std::string_view kType = "RandomZoom";
  static constexpr std::string_view kBaseName = "random_zoom";
  ZoomModule(const RandomZoomOptions& options, const BuildContext& context)
      : RandomImageModule(kType, context), options_(options) {}

 protected:
  torch::Tensor changed(const torch::Tensor& x) const override {
    const torch::Tensor tall = draw(x, options_.height_factor) + 1;
    const torch::Tensor wide = options_.width_factor ? draw(x, *options_.width_factor) + 1 : tall;
    const torch::Tensor zeros = at::zeros_like(tall);
    const double middle_x = 0.5 * static_cast<double>(x.size(3) - 1);
    const double middle_y = 0.5 * static_cast<double>(x.size(2) - 1);
    const AffineMap map{.a = {wide, zeros, (1 - wide) * middle_x}, .b = {zeros, tall, (1 - tall) * middle_y}};
    return warped(x, map, warp_of(options_));
  }

 private:
  RandomZoomOptions options_;
};

}  // namespace

Layer RandomRotation(const RandomRotationOptions& options) {
  check_range(RotationModule::kType, "factor", options.factor, -1.0, 1.0);
  return make_random_image<RotationModule>(options);
}

Layer RandomTranslation(const RandomTranslationOptions& options) {
  check_range(TranslationModule::kType, "height_factor", options.height_factor, -1.0, 1.0);
  check_range(TranslationModule::kType, "width_factor", options.width_factor, -1.0, 1.0);
  return make_random_image<TranslationModule>(options);
}

Layer RandomZoom(const RandomZoomOptions& options) {
  const auto check = [](const char* name, const RandomRange& factor) {
    if (factor.low <= -1.0) fail_option(ZoomModule::kType, name, " must be above -1, got ", factor.low);
    check_range(ZoomModule::kType, name, factor, -1.0, 1.0);
  };
  check("height_factor", options.height_factor);
  if (options.width_factor) check("width_factor", *options.width_factor);
  return make_random_image<ZoomModule>(options);
}

}  // namespace cohort
