// LAMB (You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020), algorithm 2 with
// phi the identity.
#include "base/kernels/kernels.h"
#include "cohort/optimizer.h"
#include "train/optimizers/rule.h"

namespace cohort {

namespace {

class LambRule final : public Rule<LambRule> {
 public:
  explicit LambRule(const LambOptions& options) : Rule("LAMB", {"exp_avg", "exp_avg_sq"}), options_(options) {}

  bool needs_norms() const override { return true; }
  double trust_ratio(const SquaredNorms& norms) const override { return norm_ratio(norms); }

  SquaredNorms prepare(const Segment& segment, const StepContext& context) const override {
    if (segment.dtype == torch::kFloat) {
      prepare_as<float>(kernels::update_tables().f32, segment, context);
    } else {
      prepare_as<double>(kernels::update_tables().f64, segment, context);
    }
    return {.parameter = kernels::squared_norm(segment.parameter, segment.size, segment.dtype),
            .direction = kernels::squared_norm(segment.gradient, segment.size, segment.dtype)};
  }

  template <typename T>
  void apply(const kernels::UpdateTable<T>& table, const Segment& segment, T* const* /*slots*/, const StepContext& context) const {
    table.subtract(typed<T>(segment.parameter), typed<T>(segment.gradient), segment.size,
                   context.learning_rate * segment.trust_ratio);
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, bool decay, const StepContext& context) const {
    const kernels::LambArgs a = args(decay, context);
    const torch::Tensor d = read_gradient(p, g, context, 0.0);
    slots[0].mul_(a.beta_1).add_(d, 1.0 - a.beta_1);
    slots[1].mul_(a.beta_2).addcmul_(d, d, 1.0 - a.beta_2);
    torch::Tensor direction = (slots[0] / a.correction_1) / (slots[1] / a.correction_2).sqrt_().add_(a.epsilon);
    if (a.weight_decay != 0.0) direction.add_(p, a.weight_decay);
    const double ratio = decay ? norm_ratio(norms_of(p, direction)) : 1.0;
    p.sub_(direction, context.learning_rate * ratio);
  }

 private:
  template <typename T>
  void prepare_as(const kernels::UpdateTable<T>& table, const Segment& segment, const StepContext& context) const {
    table.lamb_direction(typed<T>(segment.parameter), typed<T>(segment.gradient), typed<T>(segment.slots[0]),
                         typed<T>(segment.slots[1]), segment.size, gradient_args(context, 0.0), args(segment.decay, context));
  }

  kernels::LambArgs args(bool decay, const StepContext& context) const {
    const auto t = static_cast<double>(context.step);
    return {.beta_1 = options_.beta_1,
            .beta_2 = options_.beta_2,
            .correction_1 = 1.0 - std::pow(options_.beta_1, t),
            .correction_2 = 1.0 - std::pow(options_.beta_2, t),
            .epsilon = options_.epsilon,
            .weight_decay = decay ? options_.weight_decay : 0.0};
  }

  LambOptions options_;
};

}  // namespace

Optimizer LAMB(const LambOptions& options) {
  require_fraction("LAMB", "beta_1", options.beta_1);
  require_fraction("LAMB", "beta_2", options.beta_2);
  require_not_negative("LAMB", "epsilon", options.epsilon);
  require_not_negative("LAMB", "weight_decay", options.weight_decay);
  return {std::make_shared<LambRule>(options), options.learning_rate, options.gradient, options.exclude_from_weight_decay};
}

}  // namespace cohort
