// UnitNormalization: vectors of length one.
#include <ATen/Functions.h>

#include <algorithm>

#include "cohort/train/layers/layer_normalization.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

constexpr std::string_view kUnitNormalization = "UnitNormalization";

class UnitNormModule final : public LayerModule {
 public:
  UnitNormModule(std::vector<int64_t> axis, const BuildContext& context)
      : axis_(std::move(axis)), name_(context.name), rank_(static_cast<int64_t>(context.input.size()) + 1) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    if (x.dim() != rank_ || !x.is_floating_point()) {
      fail_called(name_, kUnitNormalization, x, c10::str("floating point of ", rank_, " dimensions"));
    }
    // float16 has neither the squares nor the factor.
    if (x.scalar_type() == torch::kHalf) return forward(x.to(torch::kFloat)).to(torch::kHalf);
    // Zeros would make infinities, whose gradients are not numbers.
    const torch::Tensor squares = x.square().sum(axis_, /*keepdim=*/true);
    return x * at::rsqrt(at::clamp_min(squares, 1e-24));
  }
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }

 private:
  std::vector<int64_t> axis_;  // counted from the batch
  std::string name_;
  int64_t rank_;
};

class UnitNormKind final : public LayerKind {
 public:
  explicit UnitNormKind(UnitNormalizationOptions options) : options_(std::move(options)) {
    if (options_.axis.empty()) fail_option(type(), "axis is empty, wanted one dimension or more");
  }
  std::string_view type() const override { return kUnitNormalization; }
  std::string_view base_name() const override { return "unit_normalization"; }
  Shape output_shape(const BuildContext& context) const override {
    (void)dimensions(context);
    return context.input;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<UnitNormModule>(dimensions(context), context);
  }

 private:
  std::vector<int64_t> dimensions(const BuildContext& context) const {
    const auto rank = static_cast<int64_t>(context.input.size()) + 1;
    std::vector<int64_t> list;
    for (const int64_t axis : options_.axis) {
      list.push_back(axis < 0 ? axis + rank : axis);
      const bool fits = list.back() > 0 && list.back() < rank;
      if (fits && std::count(list.begin(), list.end(), list.back()) == 1) continue;
      fail_input(context.name, type(), to_text(context.input) + " an example",
                 c10::str("dimensions for axis ", torch::IntArrayRef(options_.axis), ", each once, without the batch"));
    }
    return list;
  }

  UnitNormalizationOptions options_;
};

}  // namespace

Layer UnitNormalization(const UnitNormalizationOptions& options) {
  return make_layer<UnitNormKind>(options);
}

}  // namespace cohort
