// Up-sampling and borders of sequences and of volumes: one module for any number of dimensions.
#include <ATen/Functions.h>

#include "cohort/train/layers/resampling.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

// Wanted of an input: "[channels, length]", with as many dimensions as the layer has.
const char* places_text(std::size_t places) {
  return places == 1 ? "[channels, length]" : "[channels, depth, height, width]";
}

class UpSamplingNModule final : public LayerModule {
 public:
  UpSamplingNModule(std::string_view type, std::vector<int64_t> size, const BuildContext& context)
      : type_(type), size_(std::move(size)), name_(context.name), channels_(context.input[0]) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, type_, x, static_cast<int64_t>(size_.size()) + 2, 1, channels_);
    std::vector<int64_t> places;
    for (std::size_t i = 0; i < size_.size(); ++i) places.push_back(x.size(static_cast<int64_t>(i) + 2) * size_[i]);
    if (x.numel() == 0) {
      places.insert(places.begin(), {x.size(0), x.size(1)});
      return empty_from({x}, places);
    }
    return size_.size() == 1 ? at::upsample_nearest1d(x, places) : at::upsample_nearest3d(x, places);
  }

 private:
  std::string_view type_;
  std::vector<int64_t> size_;
  std::string name_;
  int64_t channels_;
};

class UpSamplingNKind final : public LayerKind {
 public:
  explicit UpSamplingNKind(std::vector<int64_t> size) : size_(std::move(size)) {
    for (const int64_t each : size_) {
      if (each <= 0) fail_option(type(), "size must be positive, got ", torch::IntArrayRef(size_));
    }
  }
  std::string_view type() const override { return size_.size() == 1 ? "UpSampling1D" : "UpSampling3D"; }
  std::string_view base_name() const override { return size_.size() == 1 ? "up_sampling1d" : "up_sampling3d"; }
  Shape output_shape(const BuildContext& context) const override {
    if (context.input.size() != size_.size() + 1) {
      fail_input(context.name, type(), to_text(context.input) + " an example", places_text(size_.size()));
    }
    Shape output = context.input;
    for (std::size_t i = 0; i < size_.size(); ++i) {
      if (output[i + 1] >= 0) output[i + 1] *= size_[i];
    }
    return output;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<UpSamplingNModule>(type(), size_, context);
  }

 private:
  std::vector<int64_t> size_;
};

// Grows where the numbers are positive, and cuts where they are negative.
class BorderNModule final : public LayerModule {
 public:
  BorderNModule(std::string_view type, std::vector<int64_t> sides, const BuildContext& context)
      : type_(type), sides_(std::move(sides)), name_(context.name), channels_(context.input[0]) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, type_, x, static_cast<int64_t>(sides_.size()) / 2 + 2, 1, channels_);
    return at::constant_pad_nd(x, sides_);
  }

 private:
  std::string_view type_;
  std::vector<int64_t> sides_;  // before and after, the last dimension first
  std::string name_;
  int64_t channels_;
};

class BorderNKind final : public LayerKind {
 public:
  BorderNKind(std::vector<Border1> borders, bool cuts) : borders_(std::move(borders)), cuts_(cuts) {
    for (const Border1& border : borders_) {
      for (const int64_t size : {border.before, border.after}) {
        if (size < 0) fail_option(type(), "the numbers of elements must be 0 or more, got ", size);
      }
    }
  }
  std::string_view type() const override {
    if (borders_.size() == 1) return cuts_ ? "Cropping1D" : "ZeroPadding1D";
    return cuts_ ? "Cropping3D" : "ZeroPadding3D";
  }
  std::string_view base_name() const override {
    if (borders_.size() == 1) return cuts_ ? "cropping1d" : "zero_padding1d";
    return cuts_ ? "cropping3d" : "zero_padding3d";
  }
  Shape output_shape(const BuildContext& context) const override {
    if (context.input.size() != borders_.size() + 1) {
      fail_input(context.name, type(), to_text(context.input) + " an example", places_text(borders_.size()));
    }
    Shape output = context.input;
    for (std::size_t i = 0; i < borders_.size(); ++i) {
      int64_t& size = output[i + 1];
      if (size < 0) continue;
      const int64_t border = borders_[i].before + borders_[i].after;
      size += cuts_ ? -border : border;
      if (size > 0) continue;
      fail_input(context.name, type(), to_text(context.input) + " an example",
                 c10::str("more than ", border, " elements in dimension ", i + 1));
    }
    return output;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    std::vector<int64_t> sides;
    const int64_t sign = cuts_ ? -1 : 1;
    for (std::size_t i = borders_.size(); i-- > 0;) {
      sides.insert(sides.end(), {sign * borders_[i].before, sign * borders_[i].after});
    }
    return std::make_shared<BorderNModule>(type(), std::move(sides), context);
  }

 private:
  std::vector<Border1> borders_;  // one for each dimension
  bool cuts_;
};

Layer make_border(const std::any& given, std::vector<Border1> borders, bool cuts) {
  return Layer(made_with<BorderNKind>(given, std::move(borders), cuts));
}

}  // namespace

Layer UpSampling1D(int64_t size) {
  return Layer(made_with<UpSamplingNKind>(size, std::vector<int64_t>{size}));
}

Layer UpSampling3D(const Size3& size) {
  return Layer(made_with<UpSamplingNKind>(size, std::vector<int64_t>{size.depth, size.height, size.width}));
}

Layer ZeroPadding1D(const Border1& padding) {
  return make_border(padding, {padding}, /*cuts=*/false);
}

Layer Cropping1D(const Border1& cropping) {
  return make_border(cropping, {cropping}, /*cuts=*/true);
}

Layer ZeroPadding3D(const Border3& padding) {
  return make_border(padding, {padding.depth, padding.height, padding.width}, /*cuts=*/false);
}

Layer Cropping3D(const Border3& cropping) {
  return make_border(cropping, {cropping.depth, cropping.height, cropping.width}, /*cuts=*/true);
}

}  // namespace cohort
