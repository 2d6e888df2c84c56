// LARS (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017): the learning rate is part of
// the velocity. The paper divides by the norms of gradient and weights, Model Garden by the norm of the gradient with
// the decay in it. With classic_momentum = false the trust ratio is that of the velocity.
#include "cohort/more_update_rules.h"
#include "wings/optimizers/optimizer/rules/more_rule.h"

namespace cohort {

namespace {

class LarsRule final : public PassRule<LarsRule> {
 public:
  explicit LarsRule(const LarsOptions& options)
      : PassRule("LARS", {"momentum_buffer"}, {.ema = options.ema}),
        options_(options),
        papers_(options.formulation == Formulation::kTorch) {}

  bool needs_norms() const override { return true; }

  double trust_ratio(const SquaredNorms& norms) const override {
    if (norms.parameter == 0.0 || norms.direction == 0.0) return 1.0;
    const double weights = std::sqrt(norms.parameter);
    const double length = std::sqrt(norms.direction);
    return options_.trust_coefficient * weights /
           (papers_ ? length + options_.weight_decay * weights + options_.epsilon : length);
  }

  SquaredNorms prepare(const Segment& segment, const StepContext& context) const override {
    SquaredNorms norms;
    with_passes(segment, [&]<typename T>(const kernels::PassTable<T>& table) {
      begin(table, segment, context);
      const kernels::CommonArgs in = with_decay(segment, segment.treatment, context);
      const kernels::LarsArgs a{.momentum = options_.momentum, .nesterov = options_.nesterov};
      norms = prepare_in_blocks(segment, [&](int64_t at, int64_t n) {
        T* p = parameter_of<T>(segment) + at;
        T* g = gradient_of<T>(segment) + at;
        options_.classic_momentum ? table.read_gradient(p, g, n, in)
                                  : table.lars_direction(p, g, slot_of<T>(segment, 0) + at, n, in, a);
      });
    });
    return norms;
  }

  void update_layers(const Segment& segment, const kernels::Layers& layers, const StepContext& context,
                     const std::function<void()>& join) const override {
    const Treatment plain{.decay = false};
    const StepContext decayed = decaying<kernels::LarsArgs>(context);
    const kernels::LayerArgs<kernels::LarsArgs> a{
        .in = {with_decay(segment, plain, context), with_decay(segment, {}, decayed)},
        .rule = {args(plain, context), args({}, context)},
        .trust = {.coefficient = options_.trust_coefficient,
                  .decay = papers_ ? options_.weight_decay : 0.0,
                  .epsilon = papers_ ? options_.epsilon : 0.0}};
    with_more_kernels(segment, [&]<typename P, typename T>(const kernels::MoreTable<P, T>& table) {
      const auto at = layer_memory<P, T>(segment, 1);
      table.lars_norms(at, layers, a);
      table.add_norms(layers);
      if (join) join();
      table.lars(at, layers, a);
    });
  }

  template <typename T>
  void apply(const kernels::PassTable<T>& table, const Segment& segment, const StepContext& context) const {
    kernels::LarsArgs a = args(segment.treatment, context);
    if (segment.treatment.adapt) a.learning_rate *= segment.trust_ratio;
    if (!options_.classic_momentum) {
      return table.subtract(parameter_of<T>(segment), gradient_of<T>(segment), segment.size, a.learning_rate);
    }
    table.lars(parameter_of<T>(segment), gradient_of<T>(segment), slot_of<T>(segment, 0), segment.size, a);
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, Treatment treatment,
             const StepContext& context) const {
    torch::Tensor step = read(p, g, treatment, context);
    torch::Tensor length = papers_ ? norm_of(step, context) : torch::Tensor();
    step.add_(p, decay_of(treatment));
    if (!options_.classic_momentum) {
      slots[0].mul_(options_.momentum).add_(step);
      step = options_.nesterov ? step.add_(slots[0], options_.momentum) : step.copy_(slots[0]);
    }
    if (treatment.adapt) {
      const torch::Tensor weights = norm_of(p, context);
      if (!papers_) length = norm_of(step, context);
      const torch::Tensor divisor =
          papers_ ? (length + weights * options_.weight_decay).add_(options_.epsilon) : length;
      step.mul_(trust_or_one((weights * options_.trust_coefficient) / divisor, weights, length));
    }
    step.mul_(context.learning_rate);
    if (options_.classic_momentum) {
      slots[0].mul_(options_.momentum).add_(step);
      step = options_.nesterov ? step.add_(slots[0], options_.momentum) : slots[0];
    }
    p.sub_(step);
  }

 private:
  friend class Rule<LarsRule>;

  double decay_of(Treatment treatment) const { return treatment.decay ? options_.weight_decay : 0.0; }

  // In Model Garden's formulation the decay is in the gradient as it is read.
  kernels::CommonArgs with_decay(const Segment& segment, Treatment treatment, const StepContext& context) const {
    kernels::CommonArgs in = common(segment, treatment, context);
    if (!papers_) in.decay += decay_of(treatment);
    return in;
  }

  kernels::LarsArgs args(Treatment treatment, const StepContext& context) const {
    return {.learning_rate = context.learning_rate,
            .momentum = options_.momentum,
            .weight_decay = papers_ ? decay_of(treatment) : 0.0,
            .nesterov = options_.nesterov,
            .classic = options_.classic_momentum};
  }

  LarsOptions options_;
  bool papers_;
};

}  // namespace

Optimizer LARS(const LarsOptions& options) {
  require_fraction("LARS", "momentum", options.momentum);
  require_not_negative("LARS", "trust_coefficient", options.trust_coefficient);
  require_not_negative("LARS", "epsilon", options.epsilon);
  if (options.nesterov && options.momentum <= 0.0) {
    fail<InvalidArgument>("[optimizer] LARS: nesterov without momentum came, a momentum above 0 was wanted");
  }
  if (!options.classic_momentum && options.formulation == Formulation::kTorch) {
    fail<InvalidArgument>("[optimizer] LARS: classic_momentum = false came with formulation = kTorch, which has none");
  }
  const bool papers = options.formulation == Formulation::kTorch;
  return make_optimizer(std::make_shared<LarsRule>(options), options,
                        unadapted(options.exclude_from_layer_adaptation, options.exclude_from_weight_decay,
                                  papers ? Formulation::kTorch : Formulation::kLegacy));
}

}  // namespace cohort
