// Adagrad (Duchi, Hazan and Singer, 2011), in the form of torch::optim::Adagrad.
#include "cohort/optimizer.h"
#include "optimizer/rules/rule.h"

namespace cohort {

namespace {

class AdagradRule final : public Rule<AdagradRule> {
 public:
  explicit AdagradRule(const AdagradOptions& options) : Rule("Adagrad", {"sum"}), options_(options) {}

  double initial_slot_value(std::size_t /*slot*/) const override { return options_.initial_accumulator_value; }

  template <typename T>
  void apply(const kernels::UpdateTable<T>& table, const Segment& segment, const StepContext& context) const {
    table.adagrad(parameter_of<T>(segment), gradient_of<T>(segment), slot_of<T>(segment, 0), segment.size,
                  gradient_args(context, segment.decay ? options_.weight_decay : 0.0),
                  {.learning_rate = rate(context), .epsilon = options_.epsilon});
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, bool decay,
             const StepContext& context) const {
    const torch::Tensor d = read_gradient(p, g, context, decay ? options_.weight_decay : 0.0);
    slots[0].addcmul_(d, d);
    p.addcdiv_(d, slots[0].sqrt().add_(options_.epsilon), -rate(context));
  }

 private:
  double rate(const StepContext& context) const {
    return context.learning_rate / (1.0 + static_cast<double>(context.step - 1) * options_.lr_decay);
  }

  AdagradOptions options_;
};

}  // namespace

Optimizer Adagrad(const AdagradOptions& options) {
  require_not_negative("Adagrad", "initial_accumulator_value", options.initial_accumulator_value);
  require_not_negative("Adagrad", "epsilon", options.epsilon);
  require_not_negative("Adagrad", "lr_decay", options.lr_decay);
  require_not_negative("Adagrad", "weight_decay", options.weight_decay);
  return {std::make_shared<AdagradRule>(options), options.learning_rate, options.gradient,
          options.exclude_from_weight_decay};
}

}  // namespace cohort
