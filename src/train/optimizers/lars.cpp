// LARS (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017), algorithm 1: the learning rate is
// part of the velocity.
#include "base/kernels/kernels.h"
#include "cohort/optimizer.h"
#include "train/optimizers/rule.h"

namespace cohort {

namespace {

class LarsRule final : public Rule<LarsRule> {
 public:
  explicit LarsRule(const LarsOptions& options) : Rule("LARS", {"momentum_buffer"}), options_(options) {}

  bool needs_norms() const override { return true; }

  double trust_ratio(const SquaredNorms& norms) const override {
    if (norms.parameter <= 0.0 || norms.direction <= 0.0) return 1.0;
    const double weights = std::sqrt(norms.parameter);
    return options_.trust_coefficient * weights /
           (std::sqrt(norms.direction) + options_.weight_decay * weights + options_.epsilon);
  }

  SquaredNorms prepare(const Segment& segment, const StepContext& context) const override {
    const kernels::GradientArgs in = gradient_args(context, 0.0);
    if (segment.dtype == torch::kFloat) {
      kernels::update_tables().f32.read_gradient(typed<float>(segment.parameter), typed<float>(segment.gradient), segment.size, in);
    } else {
      kernels::update_tables().f64.read_gradient(typed<double>(segment.parameter), typed<double>(segment.gradient), segment.size, in);
    }
    return {.parameter = kernels::squared_norm(segment.parameter, segment.size, segment.dtype),
            .direction = kernels::squared_norm(segment.gradient, segment.size, segment.dtype)};
  }

  template <typename T>
  void apply(const kernels::UpdateTable<T>& table, const Segment& segment, T* const* slots, const StepContext& context) const {
    table.lars(typed<T>(segment.parameter), typed<T>(segment.gradient), slots[0], segment.size,
               {.learning_rate = context.learning_rate * segment.trust_ratio,
                .momentum = options_.momentum,
                .weight_decay = segment.decay ? options_.weight_decay : 0.0,
                .nesterov = options_.nesterov});
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, bool decay, const StepContext& context) const {
    const torch::Tensor d = read_gradient(p, g, context, 0.0);
    const double ratio = decay ? trust_ratio(norms_of(p, d)) : 1.0;
    const torch::Tensor step = d.add(p, decay ? options_.weight_decay : 0.0).mul_(context.learning_rate * ratio);
    slots[0].mul_(options_.momentum).add_(step);
    p.sub_(options_.nesterov ? step.add(slots[0], options_.momentum) : slots[0]);
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
  return {std::make_shared<LarsRule>(options), options.learning_rate, options.gradient, options.exclude_from_weight_decay};
}

}  // namespace cohort
