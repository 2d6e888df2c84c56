#include <ATen/Functions.h>

#include "cohort/replica.h"
#include "cohort/train/layers/basic.h"
#include "train/layers/dropout_module.h"
#include "train/layers/support.h"

namespace cohort {

torch::Tensor DropoutModule::forward(const torch::Tensor& x) {
  if (!is_training() || rate_ == 0.0) return x;
  return form() != nullptr ? form()->forward(x) : drop_out(x, rate_);
}

namespace {

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

c10::optional<at::Generator> own_generator(const torch::Tensor& like) {
  Replica* const replica = Replica::current();
  if (replica == nullptr || replica->device().type() != like.device().type()) return c10::nullopt;
  return replica->generator();
}

torch::Tensor drop_out(const torch::Tensor& x, double rate) {
  torch::Tensor kept;
  {
    const torch::NoGradGuard no_grad;
    kept = at::empty_like(x).bernoulli_(1.0 - rate, own_generator(x));
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
