// Makes an optimizer of its configuration, in the form in which Model Garden's OptimizerFactory makes it: sgd, adam,
// rmsprop and adagrad are Keras' legacy optimizers there, those with "experimental" in their names the later ones,
// adamw is Model Garden's own, lamb TensorFlow's addon.
#include <algorithm>

#include "base/extension.h"
#include "base/fail.h"
#include "cohort/models/experiment.h"
#include "models/config/build_rule.h"

namespace cohort {

namespace {

using Rule = OptimizerConfig::Rule;

template <typename Group>
Optimizer build_sgd(const RuleParts& common, const Group& own, double dampening) {
  return SGD(with_common(common, own, own.weight_decay,
                         SgdOptions{.momentum = own.momentum, .nesterov = own.nesterov, .dampening = dampening}));
}

Optimizer build_adamw(RuleParts common, const Rule& rule) {
  const auto& own = rule.adamw;
  const double decay = own.weight_decay_rate < 0.0 ? own.weight_decay : own.weight_decay_rate;
  if (decay != 0.0) {
    add_names(common.excluded, own.exclude_from_weight_decay);
    if (!own.include_in_weight_decay->empty()) add_names(common.excluded, {"1d", "class_token", "pos_embedding"});
  }
  OptimizerConfig::Clips clips = own;
  if (own.gradient_clip_norm > 0.0) {
    const double global = clips.global_clipnorm;
    clips.global_clipnorm = global > 0.0 ? std::min<double>(global, own.gradient_clip_norm) : *own.gradient_clip_norm;
  }
  return AdamW(with_common(common, clips, decay, with_moments<AdamWOptions>(own)));
}

Optimizer build_rule(const RuleParts& common, const Rule& rule) {
  if (rule.type == "sgd") return build_sgd(common, rule.sgd, rule.sgd.momentum == 0.0 ? 0.0 : *rule.sgd.dampening);
  if (rule.type == "sgd_experimental") return build_sgd(common, rule.sgd_experimental, 0.0);
  if (rule.type == "adam" || rule.type == "adam_experimental") {
    const auto& own = rule.type == "adam" ? rule.adam : rule.adam_experimental;
    return Adam(with_common(common, own, own.weight_decay, with_moments<AdamOptions>(own)));
  }
  if (rule.type == "adamw") return build_adamw(common, rule);
  if (rule.type == "adamw_experimental") {
    const auto& own = rule.adamw_experimental;
    return AdamW(with_common(common, own, own.weight_decay, with_moments<AdamWOptions>(own)));
  }
  if (rule.type == "rmsprop") {
    const auto& own = rule.rmsprop;
    return RMSprop(with_common(
        common, own, own.weight_decay,
        RmspropOptions{.rho = own.rho, .momentum = own.momentum, .epsilon = own.epsilon, .centered = own.centered}));
  }
  if (rule.type == "adagrad") {
    const auto& own = rule.adagrad;
    return Adagrad(with_common(common, own, own.weight_decay,
                               AdagradOptions{.initial_accumulator_value = own.initial_accumulator_value,
                                              .epsilon = own.epsilon,
                                              .lr_decay = own.lr_decay}));
  }
  const std::string asked = c10::str("[train] trainer.optimizer_config.optimizer.type is ", rule.type);
  return extension_of<RuleBuilder>("optimizers", asked).build(common, rule);
}

// The rest of the training after its warm-up, which schedules without a number of steps of their own follow.
struct Rest {
  int64_t begin = 0;
  int64_t steps = 1;
};

// The number of steps that a schedule is given, or the rest's, which it counts from the rest's beginning.
struct StepSpan {
  StepSpan(int64_t given, int64_t own_offset, const Rest& rest)
      : steps(given > 0 ? given : rest.steps), offset(own_offset + (given > 0 ? 0 : rest.begin)) {}
  int64_t steps;
  int64_t offset;
};

// The rates that Model Garden alone has.
Schedule build_power(const OptimizerConfig::Rate& rate, const Rest& rest) {
  if (rate.type == "power") {
    return PowerDecay({.initial_learning_rate = rate.power.initial_learning_rate, .power = rate.power.power});
  }
  if (rate.type == "power_linear") {
    const auto& own = rate.power_linear;
    const StepSpan span(own.total_decay_steps, own.offset, rest);
    return PowerAndLinearDecay({.initial_learning_rate = own.initial_learning_rate,
                                .total_decay_steps = span.steps,
                                .power = own.power,
                                .linear_decay_fraction = own.linear_decay_fraction,
                                .offset = span.offset});
  }
  if (rate.type == "power_with_offset") {
    const auto& own = rate.power_with_offset;
    return PowerDecayWithOffset({.initial_learning_rate = own.initial_learning_rate,
                                 .power = own.power,
                                 .offset = own.offset,
                                 .pre_offset_learning_rate = own.pre_offset_learning_rate});
  }
  const auto& own = rate.step_cosine_with_offset;
  return StepCosineDecay({.boundaries = own.boundaries, .values = own.values, .offset = own.offset});
}

Schedule build_rate(const OptimizerConfig::Rate& rate, const Rest& rest) {
  if (rate.type == "constant") return Schedule(rate.constant.learning_rate);
  if (rate.type == "stepwise") {
    const auto& own = rate.stepwise;
    return WithOffset(PiecewiseConstantDecay({.boundaries = own.boundaries, .values = own.values}), own.offset);
  }
  if (rate.type == "exponential") {
    const auto& own = rate.exponential;
    const StepSpan span(own.decay_steps, own.offset, rest);
    return WithOffset(ExponentialDecay({.initial_learning_rate = own.initial_learning_rate,
                                        .decay_steps = span.steps,
                                        .decay_rate = own.decay_rate,
                                        .staircase = own.staircase}),
                      span.offset);
  }
  if (rate.type == "polynomial") {
    const auto& own = rate.polynomial;
    const StepSpan span(own.decay_steps, own.offset, rest);
    return WithOffset(PolynomialDecay({.initial_learning_rate = own.initial_learning_rate,
                                       .decay_steps = span.steps,
                                       .end_learning_rate = own.end_learning_rate,
                                       .power = own.power,
                                       .cycle = own.cycle}),
                      span.offset);
  }
  if (rate.type != "cosine") return build_power(rate, rest);
  const auto& own = rate.cosine;
  const StepSpan span(own.decay_steps, own.offset, rest);
  return WithOffset(
      CosineDecay({.initial_learning_rate = own.initial_learning_rate, .decay_steps = span.steps, .alpha = own.alpha}),
      span.offset);
}

// Returns the steps of the warm-up; 0 without one.
int64_t steps_of(const OptimizerConfig::Warmup& warmup) {
  if (warmup.type->empty()) return 0;
  const int64_t steps = warmup.type == "linear" ? warmup.linear.warmup_steps : warmup.polynomial.warmup_steps;
  if (steps < 1) {
    fail<InvalidArgument>("[train] trainer.optimizer_config.warmup.type is ", warmup.type, ", but warmup.", warmup.type,
                          ".warmup_steps is ", steps, ", wanted 1 or more");
  }
  return steps;
}

Schedule warmed_up(const OptimizerConfig::Warmup& warmup, int64_t steps, const Schedule& rate) {
  if (steps == 0) return rate;
  if (warmup.type == "polynomial") {
    return PolynomialWarmup({.warmup_steps = steps, .power = warmup.polynomial.power, .after = rate});
  }
  return LinearWarmup({.warmup_steps = steps,
                       .warmup_learning_rate = warmup.linear.warmup_learning_rate,
                       .after = rate,
                       .counts_from_start = true});
}

}  // namespace

Optimizer OptimizerConfig::build(int64_t train_steps, int replicas, int64_t begin, double l2) const {
  const int64_t warm = steps_of(warmup);
  const Rest rest{.begin = warm, .steps = std::max<int64_t>(train_steps - warm, 1)};
  Schedule rate = warmed_up(warmup, warm, build_rate(learning_rate, rest));
  const double factor = scale_by_replicas ? replicas : 1.0;
  const double decay = optimizer.type == "sgd" ? *optimizer.sgd.decay : 0.0;
  if (rate.is_constant() && decay == 0.0) {
    rate = rate(0) * factor;
  } else if (begin > 0 || factor != 1.0 || decay != 0.0) {
    rate = Schedule(rate.name(), [rate, factor, decay, begin](int64_t step) {
      const int64_t at = step + begin;
      return factor * rate(at) / (1.0 + decay * static_cast<double>(at));
    });
  }
  RuleParts common{
      .rate = rate, .gradient = {.gradient_accumulation_steps = accumulate_steps, .l2 = l2}, .rule = optimizer};
  add_clips(common.gradient, optimizer);
  return build_rule(common, optimizer);
}

}  // namespace cohort
