// LAMB (You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020), algorithm 2 with
// phi the identity. The paper's decay is part of the step whose norm the trust ratio takes; Keras' is decoupled.
#include "cohort/more_update_rules.h"
#include "wings/optimizers/optimizer/rules/more_rule.h"

namespace cohort {

namespace {

class LambRule final : public PassRule<LambRule> {
 public:
  explicit LambRule(const LambOptions& options)
      : PassRule("LAMB", {"exp_avg", "exp_avg_sq"},
                 {.weight_decay = decouples(options) ? options.weight_decay : 0.0, .ema = options.ema}),
        options_(options) {}

  bool needs_norms() const override { return true; }
  double trust_ratio(const SquaredNorms& norms) const override {
    if (norms.parameter == 0.0 || norms.direction == 0.0) return 1.0;
    return std::sqrt(norms.parameter) / std::sqrt(norms.direction);
  }

  SquaredNorms prepare(const Segment& segment, const StepContext& context) const override {
    SquaredNorms norms;
    with_passes(segment, [&]<typename T>(const kernels::PassTable<T>& table) {
      begin(table, segment, context);
      const kernels::CommonArgs in = reading(segment, context);
      const kernels::LambArgs a = args(segment.treatment, context);
      norms = prepare_in_blocks(segment, [&](int64_t at, int64_t n) {
        table.lamb_direction(parameter_of<T>(segment) + at, gradient_of<T>(segment) + at, slot_of<T>(segment, 0) + at,
                             slot_of<T>(segment, 1) + at, n, in, a);
      });
    });
    return norms;
  }

  void update_layers(const Segment& segment, const kernels::Layers& layers, const StepContext& context,
                     const std::function<void()>& join) const override {
    const Treatment plain{.decay = false};
    const StepContext decayed = decaying<kernels::LambArgs>(context);
    const kernels::LayerArgs<kernels::LambArgs> a{.in = {common(segment, plain, context), common(segment, {}, decayed)},
                                                  .rule = {args(plain, context), args({}, context)},
                                                  .trust = {}};
    with_more_kernels(segment, [&]<typename P, typename T>(const kernels::MoreTable<P, T>& table) {
      const auto at = layer_memory<P, T>(segment, 2);
      table.lamb_norms(at, layers, a);
      table.add_norms(layers);
      if (join) join();
      table.lamb(at, layers, a);
    });
  }

  template <typename T>
  void apply(const kernels::PassTable<T>& table, const Segment& segment, const StepContext& context) const {
    table.subtract(parameter_of<T>(segment), gradient_of<T>(segment), segment.size,
                   context.learning_rate * (segment.treatment.adapt ? segment.trust_ratio : 1.0));
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, Treatment treatment,
             const StepContext& context) const {
    const kernels::LambArgs a = args(treatment, context);
    const torch::Tensor d = read(p, g, treatment, context);
    slots[0].mul_(a.beta_1).add_(d, 1.0 - a.beta_1);
    slots[1].mul_(a.beta_2).addcmul_(d, d, 1.0 - a.beta_2);
    torch::Tensor direction = (slots[0] * a.scale).div_(slots[1].sqrt().add_(a.epsilon));
    if (a.weight_decay != 0.0) direction.add_(p, a.weight_decay);
    if (treatment.adapt) {
      const torch::Tensor weights = norm_of(p, context);
      const torch::Tensor length = norm_of(direction, context);
      direction.mul_(trust_or_one(weights / length, weights, length));
    }
    p.sub_(direction, context.learning_rate);
  }

 private:
  friend class Rule<LambRule>;

  static bool decouples(const LambOptions& options) { return options.formulation == Formulation::kKeras; }

  kernels::LambArgs args(Treatment treatment, const StepContext& context) const {
    const BiasCorrections corrections = bias_corrections(options_.beta_1, options_.beta_2, context.step);
    return {.learning_rate = context.learning_rate,
            .beta_1 = options_.beta_1,
            .beta_2 = options_.beta_2,
            .scale = corrections.root_second / corrections.first,
            .epsilon = options_.epsilon * corrections.root_second,
            .weight_decay = treatment.decay && !decouples(options_) ? options_.weight_decay : 0.0};
  }

  LambOptions options_;
};

}  // namespace

Optimizer LAMB(const LambOptions& options) {
  require_fraction("LAMB", "beta_1", options.beta_1);
  require_fraction("LAMB", "beta_2", options.beta_2);
  require_not_negative("LAMB", "epsilon", options.epsilon);
  return make_optimizer(
      std::make_shared<LambRule>(options), options,
      unadapted(options.exclude_from_layer_adaptation, options.exclude_from_weight_decay, options.formulation));
}

}  // namespace cohort
