#include <ATen/Functions.h>

#include "cohort/parallel/mesh_strategy.h"
#include "cohort/replica.h"
#include "cohort/train/layers.h"
#include "train/layers/support.h"
#include "wings/mesh/train/parts_between.h"

namespace cohort {

namespace {

class DropoutModule final : public LayerModule, public PartsBetween {
 public:
  explicit DropoutModule(double rate) : rate_(rate) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    if (!is_training() || rate_ == 0.0) return x;
    const PartsBetween* maker = passed_from();
    return maker == nullptr ? drop_out(x, rate_) : drop_out(x, rate_, maker->parts_axis(), maker->parts_dim());
  }
  Parts parts() const override { return Parts::kPasses; }
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }

 private:
  double rate_;
};

class DropoutKind final : public LayerKind {
 public:
  explicit DropoutKind(const DropoutOptions& options) : rate_(options.rate) {
    if (!(rate_ >= 0.0 && rate_ < 1.0)) fail_option("Dropout", "rate must be in [0, 1), got ", rate_);
  }
  std::string_view type() const override { return "Dropout"; }
  std::string_view base_name() const override { return "dropout"; }
  Shape output_shape(const BuildContext& context) const override { return context.input; }
  std::shared_ptr<LayerModule> build(const BuildContext& /*context*/) const override {
    return std::make_shared<DropoutModule>(rate_);
  }

 private:
  double rate_;
};

}  // namespace

torch::Tensor drop_out(const torch::Tensor& x, double rate, const std::string& axis, int64_t dim) {
  torch::Tensor kept;
  {
    const torch::NoGradGuard no_grad;
    Replica* replica = Replica::current();
    std::vector<int64_t> whole = x.sizes().vec();
    if (!axis.empty()) whole[static_cast<std::size_t>(dim)] *= replica->group(axis).size();
    kept = axis.empty() ? at::empty_like(x) : at::empty(whole, x.options(), x.suggest_memory_format());
    if (replica != nullptr && replica->device().type() == x.device().type()) {
      kept.bernoulli_(1.0 - rate, replica->generator());
    } else {
      kept.bernoulli_(1.0 - rate);
    }
    if (!axis.empty()) kept = part_along(kept, axis, dim);
    kept.mul_(1.0 / (1.0 - rate));
  }
  return x * kept;
}

Layer Dropout(const DropoutOptions& options) {
  return make_layer<DropoutKind>(options);
}

Layer Dropout(double rate) {
  return Dropout(DropoutOptions{.rate = rate});
}

}  // namespace cohort
