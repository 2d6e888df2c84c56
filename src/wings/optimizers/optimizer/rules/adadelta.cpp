// Adadelta (Zeiler, 2012): the step has the size of the steps before.
#include "cohort/more_update_rules.h"
#include "wings/optimizers/optimizer/rules/more_rule.h"

namespace cohort {

namespace {

class AdadeltaRule final : public MoreRule<AdadeltaRule> {
 public:
  explicit AdadeltaRule(const AdadeltaOptions& options)
      : MoreRule("Adadelta", {"square_avg", "acc_delta"}, {.weight_decay = options.weight_decay, .ema = options.ema}),
        options_(options) {}

  template <typename P, typename T>
  void apply(const kernels::MoreTable<P, T>& table, const Segment& segment, const StepContext& context) const {
    table.adadelta(parameter_of<P>(segment), gradient_of<P>(segment), slot_of<T>(segment, 0), slot_of<T>(segment, 1),
                   segment.size, reading(segment, context), args(segment.treatment, context));
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, Treatment treatment,
             const StepContext& context) const {
    const kernels::AdadeltaArgs a = args(treatment, context);
    const torch::Tensor d = read(p, g, treatment, context);
    slots[0].mul_(a.rho).addcmul_(d, d, 1.0 - a.rho);
    const torch::Tensor step = (slots[1] + a.epsilon).sqrt_().mul_(d).div_((slots[0] + a.epsilon).sqrt_());
    slots[1].mul_(a.rho).addcmul_(step, step, 1.0 - a.rho);
    p.sub_(step, a.learning_rate);
  }

 private:
  friend class Rule<AdadeltaRule>;

  kernels::AdadeltaArgs args(Treatment /*treatment*/, const StepContext& context) const {
    return {.learning_rate = context.learning_rate, .rho = options_.rho, .epsilon = options_.epsilon};
  }

  AdadeltaOptions options_;
};

}  // namespace

Optimizer Adadelta(const AdadeltaOptions& options) {
  require_fraction("Adadelta", "rho", options.rho);
  require_not_negative("Adadelta", "epsilon", options.epsilon);
  return make_optimizer(std::make_shared<AdadeltaRule>(options), options);
}

}  // namespace cohort
