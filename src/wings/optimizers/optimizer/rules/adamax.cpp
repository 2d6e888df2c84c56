// Adamax (Kingma and Ba, "Adam", 2015, section 7): Adam with the infinity norm.
#include "cohort/more_update_rules.h"
#include "wings/optimizers/optimizer/rules/more_rule.h"

namespace cohort {

namespace {

class AdamaxRule final : public MoreRule<AdamaxRule> {
 public:
  explicit AdamaxRule(const AdamaxOptions& options)
      : MoreRule("Adamax", {"exp_avg", "exp_inf"}, {.weight_decay = options.weight_decay, .ema = options.ema}),
        options_(options) {}

  template <typename P, typename T>
  void apply(const kernels::MoreTable<P, T>& table, const Segment& segment, const StepContext& context) const {
    table.adamax(parameter_of<P>(segment), gradient_of<P>(segment), slot_of<T>(segment, 0), slot_of<T>(segment, 1),
                 segment.size, reading(segment, context), args(segment.treatment, context));
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, Treatment treatment,
             const StepContext& context) const {
    const kernels::AdamaxArgs a = args(treatment, context);
    const torch::Tensor d = read(p, g, treatment, context);
    slots[0].mul_(a.beta_1).add_(d, 1.0 - a.beta_1);
    at::maximum_out(slots[1], slots[1].mul_(a.beta_2), d.abs());
    p.addcdiv_(slots[0], slots[1] + a.epsilon, -a.step_size);
  }

 private:
  friend class Rule<AdamaxRule>;

  kernels::AdamaxArgs args(Treatment /*treatment*/, const StepContext& context) const {
    const BiasCorrections corrections = bias_corrections(options_.beta_1, options_.beta_2, context.step);
    return {.beta_1 = options_.beta_1,
            .beta_2 = options_.beta_2,
            .step_size = context.learning_rate / corrections.first,
            .epsilon = options_.epsilon};
  }

  AdamaxOptions options_;
};

}  // namespace

Optimizer Adamax(const AdamaxOptions& options) {
  require_fraction("Adamax", "beta_1", options.beta_1);
  require_fraction("Adamax", "beta_2", options.beta_2);
  require_not_negative("Adamax", "epsilon", options.epsilon);
  return make_optimizer(std::make_shared<AdamaxRule>(options), options);
}

}  // namespace cohort
