// Layers that change values at random while they train.
#include "cohort/train/layers/noise.h"

#include <ATen/Functions.h>

#include <cmath>

#include "train/layers/support.h"

namespace cohort {

namespace {

class NoiseModule : public LayerModule {
 public:
  explicit NoiseModule(double amount) : amount_(amount) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    check(x);
    return is_training() && amount_ > 0.0 ? noisy(x) : x;
  }
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }

 protected:
  virtual void check(const torch::Tensor& x) const = 0;
  virtual torch::Tensor noisy(const torch::Tensor& x) const = 0;
  // Returns the rate or the deviation.
  double amount() const { return amount_; }

 private:
  double amount_;
};

class ElementNoise : public NoiseModule {
 public:
  ElementNoise(std::string_view type, double amount, const BuildContext& context)
      : NoiseModule(amount), type_(type), name_(context.name) {}

 protected:
  void check(const torch::Tensor& x) const override {
    if (!x.is_floating_point()) fail_called(name_, type_, x, "floating point");
  }
  static torch::Tensor normal_like(const torch::Tensor& x, double mean, double deviation) {
    const torch::NoGradGuard no_grad;
    return at::empty_like(x).normal_(mean, deviation, own_generator(x));
  }

 private:
  std::string_view type_;
  std::string name_;
};

class GaussianNoiseModule final : public ElementNoise {
 public:
  static constexpr std::string_view kType = "GaussianNoise";
  static constexpr std::string_view kBaseName = "gaussian_noise";
  static constexpr const char* kAmount = "stddev";
  using ElementNoise::ElementNoise;
  torch::Tensor noisy(const torch::Tensor& x) const override { return x + normal_like(x, 0.0, amount()); }
};

class GaussianDropoutModule final : public ElementNoise {
 public:
  static constexpr std::string_view kType = "GaussianDropout";
  static constexpr std::string_view kBaseName = "gaussian_dropout";
  static constexpr const char* kAmount = "rate";
  using ElementNoise::ElementNoise;
  torch::Tensor noisy(const torch::Tensor& x) const override {
    return x * normal_like(x, 1.0, std::sqrt(amount() / (1.0 - amount())));
  }
};

class AlphaDropoutModule final : public ElementNoise {
 public:
  static constexpr std::string_view kType = "AlphaDropout";
  static constexpr std::string_view kBaseName = "alpha_dropout";
  static constexpr const char* kAmount = "rate";
  using ElementNoise::ElementNoise;
  torch::Tensor noisy(const torch::Tensor& x) const override {
    constexpr double kLowest = -1.6732632423543772 * 1.0507009873554805;  // selu's limit
    const double rate = amount();
    const double scale = 1.0 / std::sqrt((1.0 - rate) * (1.0 + rate * kLowest * kLowest));
    torch::Tensor kept, dropped;
    {
      const torch::NoGradGuard no_grad;
      kept = at::empty_like(x).bernoulli_(1.0 - rate, own_generator(x));
      dropped = (1.0 - kept) * (scale * kLowest) - scale * kLowest * rate;
      kept.mul_(scale);
    }
    return x * kept + dropped;
  }
};

template <typename Module>
class ElementNoiseKind final : public LayerKind {
 public:
  explicit ElementNoiseKind(double amount) : amount_(amount) {
    if constexpr (Module::kType == GaussianNoiseModule::kType) {
      if (!(amount_ >= 0.0)) fail_option(type(), "stddev must be 0 or more, got ", amount_);
    } else {
      if (!(amount_ >= 0.0 && amount_ < 1.0)) fail_option(type(), "rate must be in [0, 1), got ", amount_);
    }
  }
  std::string_view type() const override { return Module::kType; }
  std::string_view base_name() const override { return Module::kBaseName; }
  Shape output_shape(const BuildContext& context) const override { return context.input; }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<Module>(Module::kType, amount_, context);
  }

 private:
  double amount_;
};

class SpatialDropoutModule final : public NoiseModule {
 public:
  SpatialDropoutModule(std::string_view type, double rate, int64_t channels, const BuildContext& context)
      : NoiseModule(rate),
        type_(type),
        name_(context.name),
        rank_(static_cast<int64_t>(context.input.size()) + 1),
        channels_(channels) {}

 protected:
  void check(const torch::Tensor& x) const override {
    if (x.dim() != rank_ || !x.is_floating_point()) {
      fail_called(name_, type_, x, c10::str("floating point of ", rank_, " dimensions"));
    }
  }
  torch::Tensor noisy(const torch::Tensor& x) const override {
    std::vector<int64_t> shape(static_cast<std::size_t>(rank_), 1);
    shape.front() = x.size(0);
    shape[static_cast<std::size_t>(channels_)] = x.size(channels_);
    return x * drop_out(at::ones(shape, x.options().requires_grad(false)), amount());
  }

 private:
  std::string_view type_;
  std::string name_;
  int64_t rank_;
  int64_t channels_;  // the dimension
};

class SpatialDropoutKind final : public LayerKind {
 public:
  // `places`: the dimensions besides those of examples and channels.
  SpatialDropoutKind(std::size_t places, double rate, bool channels_first)
      : places_(places), rate_(rate), channels_first_(channels_first) {
    if (!(rate >= 0.0 && rate < 1.0)) fail_option(type(), "rate must be in [0, 1), got ", rate);
  }
  std::string_view type() const override {
    return places_ == 1 ? "SpatialDropout1D" : places_ == 2 ? "SpatialDropout2D" : "SpatialDropout3D";
  }
  std::string_view base_name() const override {
    return places_ == 1 ? "spatial_dropout1d" : places_ == 2 ? "spatial_dropout2d" : "spatial_dropout3d";
  }
  Shape output_shape(const BuildContext& context) const override {
    if (context.input.size() == places_ + 1) return context.input;
    fail_input(context.name, type(), to_text(context.input) + " an example", c10::str(places_ + 1, " dimensions"));
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<SpatialDropoutModule>(type(), rate_, channels_first_ ? 1 : 2, context);
  }

 private:
  std::size_t places_;
  double rate_;
  bool channels_first_;
};

template <typename Module, typename Options>
Layer make_noise(const Options& options, double amount) {
  return Layer(made_with<ElementNoiseKind<Module>>(options, amount), options.name);
}

}  // namespace

Layer SpatialDropout1D(const SpatialDropout1DOptions& options) {
  return Layer(made_with<SpatialDropoutKind>(options, 1, options.rate, options.channels_first), options.name);
}

Layer SpatialDropout1D(double rate) {
  return SpatialDropout1D(SpatialDropout1DOptions{.rate = rate});
}

Layer SpatialDropout2D(const SpatialDropoutOptions& options) {
  return Layer(made_with<SpatialDropoutKind>(options, 2, options.rate, /*channels_first=*/true), options.name);
}

Layer SpatialDropout2D(double rate) {
  return SpatialDropout2D(SpatialDropoutOptions{.rate = rate});
}

Layer SpatialDropout3D(const SpatialDropoutOptions& options) {
  return Layer(made_with<SpatialDropoutKind>(options, 3, options.rate, /*channels_first=*/true), options.name);
}

Layer SpatialDropout3D(double rate) {
  return SpatialDropout3D(SpatialDropoutOptions{.rate = rate});
}

Layer GaussianNoise(const GaussianNoiseOptions& options) {
  return make_noise<GaussianNoiseModule>(options, options.stddev);
}

Layer GaussianNoise(double stddev) {
  return GaussianNoise(GaussianNoiseOptions{.stddev = stddev});
}

Layer GaussianDropout(const GaussianDropoutOptions& options) {
  return make_noise<GaussianDropoutModule>(options, options.rate);
}

Layer GaussianDropout(double rate) {
  return GaussianDropout(GaussianDropoutOptions{.rate = rate});
}

Layer AlphaDropout(const AlphaDropoutOptions& options) {
  return make_noise<AlphaDropoutModule>(options, options.rate);
}

Layer AlphaDropout(double rate) {
  return AlphaDropout(AlphaDropoutOptions{.rate = rate});
}

}  // namespace cohort
