// What the layers that change images at random have in common.
#pragma once

#include <ATen/Functions.h>

#include <array>
#include <string>

#include "cohort/train/layers/random_images.h"
#include "train/layers/support.h"

namespace cohort {

// The numbers of a RandomCrop, by which files tell it.
struct RandomCropParts {
  int64_t height = 0;
  int64_t width = 0;
  std::string name = {};
};

// The module of such a layer: the identity outside of training.
class RandomImageModule : public LayerModule {
 public:
  RandomImageModule(std::string_view type, const BuildContext& context)
      : type_(type), name_(context.name), channels_(context.input[0]) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    check(x);
    if (!is_training() || x.numel() == 0) return x;
    if (x.scalar_type() == torch::kDouble || x.scalar_type() == torch::kFloat) return changed(x);
    return changed(x.to(torch::kFloat)).to(x.scalar_type());
  }

 protected:
  void check(const torch::Tensor& x) const { check_input(name_, type_, x, 4, 1, channels_); }

  // Changes float32 or float64 images.
  virtual torch::Tensor changed(const torch::Tensor& x) const = 0;

  // Draws a number for each image, float32.
  static torch::Tensor draw(const torch::Tensor& x, const RandomRange& range) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor numbers = at::empty({x.size(0)}, x.options().dtype(torch::kFloat).requires_grad(false));
    return numbers.uniform_(range.low, range.high, own_generator(x));
  }

 private:
  std::string_view type_;
  std::string name_;
  int64_t channels_;
};

// A sort of such a layer, whose output has the shape of its input. Module is made from the options and the context.
template <typename Module, typename Options>
class RandomImageKind final : public LayerKind {
 public:
  explicit RandomImageKind(Options options) : options_(std::move(options)) {}
  std::string_view type() const override { return Module::kType; }
  std::string_view base_name() const override { return Module::kBaseName; }
  Shape output_shape(const BuildContext& context) const override {
    return image_shape(context, type(), /*may_add_channel=*/false);
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<Module>(options_, context);
  }

 private:
  Options options_;
};

template <typename Module, typename Options>
Layer make_random_image(const Options& options) {
  return make_layer<RandomImageKind<Module, Options>>(options);
}

// Fails with InvalidArgument unless the interval lies within [low, high].
inline void check_range(std::string_view type, const char* name, const RandomRange& range, double low, double high) {
  if (range.low >= low && range.low <= range.high && range.high <= high) return;
  fail_option(type, name, " must be an interval within [", low, ", ", high, "], got ", range.low, " to ", range.high);
}

}  // namespace cohort
