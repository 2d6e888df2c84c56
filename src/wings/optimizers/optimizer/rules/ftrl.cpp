// Follow the regularized leader, proximal (McMahan et al., "Ad Click Prediction: a View from the Trenches", 2013): the
// parameter is recomputed from sums at each step, so that l1 makes it exactly 0.
#include "cohort/more_update_rules.h"
#include "wings/optimizers/optimizer/rules/more_rule.h"

namespace cohort {

namespace {

class FtrlRule final : public MoreRule<FtrlRule> {
 public:
  explicit FtrlRule(const FtrlOptions& options)
      : MoreRule("Ftrl", {"accumulator", "linear"}, {.weight_decay = options.weight_decay, .ema = options.ema}),
        options_(options) {}

  double initial_slot_value(std::size_t slot) const override {
    return slot == 0 ? options_.initial_accumulator_value : 0.0;
  }

  template <typename P, typename T>
  void apply(const kernels::MoreTable<P, T>& table, const Segment& segment, const StepContext& context) const {
    if (context.learning_rate == 0.0 && context.numbers == nullptr) {  // then the sums stay, see FtrlStep
      return table.surround(parameter_of<P>(segment), segment.size, reading(segment, context));
    }
    table.ftrl(parameter_of<P>(segment), gradient_of<P>(segment), slot_of<T>(segment, 0), slot_of<T>(segment, 1),
               segment.size, reading(segment, context), args(segment.treatment, context));
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, Treatment treatment,
             const StepContext& context) const {
    if (context.learning_rate == 0.0) return;
    const kernels::FtrlArgs a = args(treatment, context);
    const torch::Tensor d = read(p, g, treatment, context);
    const torch::Tensor before = slots[0].pow(a.exponent);
    slots[0].addcmul_(d, d);
    const torch::Tensor after = slots[0].pow(a.exponent);
    slots[1].add_(d.add(p, a.twice_shrinkage).sub_((after - before).div_(a.learning_rate).mul_(p)));
    p.copy_((slots[1].clamp(-a.l1, a.l1) - slots[1]) / (after / a.learning_rate + a.twice_l2));
  }

 private:
  friend class Rule<FtrlRule>;

  kernels::FtrlArgs args(Treatment /*treatment*/, const StepContext& context) const {
    return {.learning_rate = context.learning_rate,
            .exponent = -options_.learning_rate_power,
            .l1 = options_.l1_regularization_strength,
            .twice_l2 = 2.0 * options_.l2_regularization_strength + options_.beta / context.learning_rate,
            .twice_shrinkage = 2.0 * options_.l2_shrinkage_regularization_strength};
  }

  FtrlOptions options_;
};

}  // namespace

Optimizer Ftrl(const FtrlOptions& options) {
  using Field = std::pair<const char*, double>;
  for (const auto& [field, value] :
       {Field{"-learning_rate_power", -options.learning_rate_power},
        Field{"initial_accumulator_value", options.initial_accumulator_value},
        Field{"l1_regularization_strength", options.l1_regularization_strength},
        Field{"l2_regularization_strength", options.l2_regularization_strength},
        Field{"l2_shrinkage_regularization_strength", options.l2_shrinkage_regularization_strength},
        Field{"beta", options.beta}}) {
    require_not_negative("Ftrl", field, value);
  }
  return make_optimizer(std::make_shared<FtrlRule>(options), options);
}

}  // namespace cohort
