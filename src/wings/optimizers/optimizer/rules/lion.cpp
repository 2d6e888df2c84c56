// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023): the sign of a mean of gradients.
#include "cohort/more_update_rules.h"
#include "wings/optimizers/optimizer/rules/more_rule.h"

namespace cohort {

namespace {

class LionRule final : public MoreRule<LionRule> {
 public:
  explicit LionRule(const LionOptions& options)
      : MoreRule("Lion", {"exp_avg"}, {.weight_decay = options.weight_decay, .ema = options.ema}), options_(options) {}

  template <typename P, typename T>
  void apply(const kernels::MoreTable<P, T>& table, const Segment& segment, const StepContext& context) const {
    table.lion(parameter_of<P>(segment), gradient_of<P>(segment), slot_of<T>(segment, 0), segment.size,
               reading(segment, context), args(segment.treatment, context));
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, Treatment treatment,
             const StepContext& context) const {
    const kernels::LionArgs a = args(treatment, context);
    const torch::Tensor d = read(p, g, treatment, context);
    // sign() of a NaN is 0, and the NaN has to be seen.
    const torch::Tensor mix = (slots[0] * a.beta_1).add_(d, 1.0 - a.beta_1);
    p.sub_(at::where(mix.isnan(), mix, mix.sign()), a.learning_rate);
    slots[0].mul_(a.beta_2).add_(d, 1.0 - a.beta_2);
  }

 private:
  friend class Rule<LionRule>;

  kernels::LionArgs args(Treatment /*treatment*/, const StepContext& context) const {
    return {.learning_rate = context.learning_rate, .beta_1 = options_.beta_1, .beta_2 = options_.beta_2};
  }

  LionOptions options_;
};

}  // namespace

Optimizer Lion(const LionOptions& options) {
  require_fraction("Lion", "beta_1", options.beta_1);
  require_fraction("Lion", "beta_2", options.beta_2);
  return make_optimizer(std::make_shared<LionRule>(options), options);
}

}  // namespace cohort
