#include <ATen/Functions.h>

#include "cohort/replica.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

class DropoutModule final : public LayerModule {
 public:
  explicit DropoutModule(double rate) : rate_(rate) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    if (!is_training() || rate_ == 0.0) return x;
    return x * mask_like(x);
  }

 private:
  torch::Tensor mask_like(const torch::Tensor& x) const {
    const torch::NoGradGuard no_grad;
    torch::Tensor mask = at::empty_like(x);
    Replica* replica = Replica::current();
    if (replica != nullptr && replica->device().type() == x.device().type()) {
      mask.bernoulli_(1.0 - rate_, replica->generator());
    } else {
      mask.bernoulli_(1.0 - rate_);
    }
    return mask.mul_(1.0 / (1.0 - rate_));
  }

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

Layer Dropout(const DropoutOptions& options) {
  return make_layer<DropoutKind>(options);
}

Layer Dropout(double rate) {
  return Dropout(DropoutOptions{.rate = rate});
}

}  // namespace cohort
