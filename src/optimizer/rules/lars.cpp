// LARS (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017), algorithm 1: the learning
// rate is part of the velocity.
#include "cohort/optimizer.h"
#include "optimizer/rules/rule.h"

namespace cohort {

namespace {

class LarsRule final : public Rule<LarsRule> {
 public:
  explicit LarsRule(const LarsOptions& options) : Rule("LARS", {"momentum_buffer"}), options_(options) {}

  bool needs_norms() const override { return true; }

  double trust_ratio(const SquaredNorms& norms) const override {
    if (norms.parameter == 0.0 || norms.direction == 0.0) return 1.0;
    const double weights = std::sqrt(norms.parameter);
    return options_.trust_coefficient * weights /
           (std::sqrt(norms.direction) + options_.weight_decay * weights + options_.epsilon);
  }

  SquaredNorms prepare(const Segment& segment, const StepContext& context) const override {
    SquaredNorms norms;
    with_kernels(segment, [&]<typename T>(const kernels::UpdateTable<T>& table) {
      const kernels::GradientArgs in = gradient_args(context, 0.0);
      norms = prepare_in_blocks(
          segment, [&](int64_t at, int64_t n) { table.read_gradient(gradient_of<T>(segment) + at, n, in); });
    });
    return norms;
  }

  template <typename T>
  void apply(const kernels::UpdateTable<T>& table, const Segment& segment, const StepContext& context) const {
    table.lars(parameter_of<T>(segment), gradient_of<T>(segment), slot_of<T>(segment, 0), segment.size,
               {.learning_rate = context.learning_rate * (segment.decay ? segment.trust_ratio : 1.0),
                .momentum = options_.momentum,
                .weight_decay = segment.decay ? options_.weight_decay : 0.0,
                .nesterov = options_.nesterov});
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, bool decay,
             const StepContext& context) const {
    torch::Tensor step = read_gradient(p, g, context, 0.0);
    if (decay) {
      const torch::Tensor weights = norm_of(p);
      const torch::Tensor length = norm_of(step);
      const torch::Tensor ratio =
          (weights * options_.trust_coefficient) / (length + weights * options_.weight_decay).add_(options_.epsilon);
      step.add_(p, options_.weight_decay).mul_(trust_or_one(ratio, weights, length));
    }
    step.mul_(context.learning_rate);
    slots[0].mul_(options_.momentum).add_(step);
    p.sub_(options_.nesterov ? step.add_(slots[0], options_.momentum) : slots[0]);
  }

 private:
  LarsOptions options_;
};

}  // namespace

Optimizer LARS(const LarsOptions& options) {
  require_fraction("LARS", "momentum", options.momentum);
  require_not_negative("LARS", "trust_coefficient", options.trust_coefficient);
  require_not_negative("LARS", "epsilon", options.epsilon);
  require_not_negative("LARS", "weight_decay", options.weight_decay);
  if (options.nesterov && options.momentum <= 0.0) {
    fail<InvalidArgument>("[optimizer] LARS: nesterov without momentum came, a momentum above 0 was wanted");
  }
  return {std::make_shared<LarsRule>(options), options.learning_rate, options.gradient,
          options.exclude_from_weight_decay};
}

}  // namespace cohort
