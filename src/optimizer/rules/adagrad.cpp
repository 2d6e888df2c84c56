// Adagrad (Duchi, Hazan and Singer, 2011). Keras has epsilon inside of the root; torch::optim::Adagrad and Keras'
// legacy one have it beside the root.
#include "cohort/optimizer.h"
#include "optimizer/rules/rule.h"

namespace cohort {

namespace {

class AdagradRule final : public Rule<AdagradRule> {
 public:
  explicit AdagradRule(const AdagradOptions& options)
      : Rule("Adagrad", {"sum"}, surroundings(options.weight_decay, options.ema, options.formulation)),
        options_(options) {}

  double initial_slot_value(std::size_t slot) const override {
    return slot == 0 ? options_.initial_accumulator_value : 0.0;
  }

  template <typename P, typename T>
  void apply(const kernels::UpdateTable<P, T>& table, const Segment& segment, const StepContext& context) const {
    table.adagrad(parameter_of<P>(segment), gradient_of<P>(segment), slot_of<T>(segment, 0), segment.size,
                  reading(segment, context), args(segment.treatment, context));
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, Treatment treatment,
             const StepContext& context) const {
    const kernels::AdagradArgs a = args(treatment, context);
    const torch::Tensor d = read(p, g, treatment, context);
    slots[0].addcmul_(d, d);
    p.addcdiv_(d, (slots[0] + a.inside).sqrt_().add_(a.epsilon), -a.learning_rate);
  }

 private:
  friend class Rule<AdagradRule>;

  kernels::AdagradArgs args(Treatment /*treatment*/, const StepContext& context) const {
    const bool inside = options_.formulation == Formulation::kKeras;
    return {.learning_rate = context.learning_rate / (1.0 + static_cast<double>(context.step - 1) * options_.lr_decay),
            .inside = inside ? options_.epsilon : 0.0,
            .epsilon = inside ? 0.0 : options_.epsilon};
  }

  AdagradOptions options_;
};

}  // namespace

Optimizer Adagrad(const AdagradOptions& options) {
  require_not_negative("Adagrad", "initial_accumulator_value", options.initial_accumulator_value);
  require_not_negative("Adagrad", "epsilon", options.epsilon);
  require_not_negative("Adagrad", "lr_decay", options.lr_decay);
  require_torch("Adagrad", "lr_decay", options.lr_decay == 0.0, options.formulation);
  return make_optimizer(std::make_shared<AdagradRule>(options), options);
}

}  // namespace cohort
